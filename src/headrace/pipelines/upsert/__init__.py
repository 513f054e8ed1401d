"""Upserts by key into PostgreSQL and SQLite."""
