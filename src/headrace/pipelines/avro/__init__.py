"""Avro values as columns."""
