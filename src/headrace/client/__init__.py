"""The SDK: publish, subscribe, consume and acknowledge, on librdkafka. `public.py` lists what `headrace` exports.

It talks to brokers over the wire alone. Everything but queues works with any Kafka broker.
"""
