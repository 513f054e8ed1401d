"""The transaction coordinator: a pure state machine, its records, and the writers of transaction markers."""
