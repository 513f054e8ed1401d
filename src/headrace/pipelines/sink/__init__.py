"""Rows to topics, exactly once."""
