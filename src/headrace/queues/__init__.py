"""Queues: messages are leased to receivers, retried, and moved to dead-letter queues."""
