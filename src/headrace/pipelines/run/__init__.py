"""Running pipelines on Spark: sessions, plans, queries, recovery from failing records, and previews."""
