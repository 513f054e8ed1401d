"""Avro schemas: parsing, canonical form and compatibility."""
