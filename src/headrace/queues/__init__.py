"""Queues: messages that are handed out, acknowledged, retried, and never forgotten."""
