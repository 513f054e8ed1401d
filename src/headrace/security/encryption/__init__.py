"""Encryption at rest: master keys, data keys of topics, and the encryption of record batches."""
