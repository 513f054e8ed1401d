"""Archives: topics copied to tables, read as one DataFrame with the topic, and replayed."""
