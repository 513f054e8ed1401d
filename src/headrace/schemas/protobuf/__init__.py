"""Protobuf schemas, proto2 and proto3: parsing, canonical text and compatibility."""
