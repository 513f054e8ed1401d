"""Schemas of messages: their types, their rules of compatibility, and the subjects that have versions of them."""
