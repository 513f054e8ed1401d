"""Decodes Protobuf messages to Arrow columns and encodes them, in bulk."""
