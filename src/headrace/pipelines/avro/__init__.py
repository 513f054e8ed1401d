"""Decodes Avro values to Arrow columns, in bulk."""
