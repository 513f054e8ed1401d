"""Typed messages: schemas of the brokers' registry, and Python types."""
