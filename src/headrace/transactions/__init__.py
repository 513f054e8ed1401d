"""The transaction coordinator: a pure machine, its records, and what writes markers."""
