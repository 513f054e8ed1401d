"""Reads values of JSON Schemas: columns from the schema, and each value checked by the one it was written with."""
