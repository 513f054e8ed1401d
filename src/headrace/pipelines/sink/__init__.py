"""The topic sink: rows to topics, at least once or exactly once."""
