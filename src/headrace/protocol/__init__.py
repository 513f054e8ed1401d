"""The Kafka protocol: framing, and requests and responses as objects."""

from headrace.protocol.kio_import import load_kio

load_kio()
