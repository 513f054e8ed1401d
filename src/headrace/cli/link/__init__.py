"""`headrace link`: geo-replication."""
