"""The Kafka protocol: framing, and requests and responses as objects."""

from headrace.protocol.loading import load_kio

load_kio()
