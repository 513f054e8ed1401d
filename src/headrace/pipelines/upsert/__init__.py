"""Rows to tables of PostgreSQL and SQLite, by key."""
