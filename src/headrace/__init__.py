"""A durable message queue in Python that speaks the Kafka protocol."""
