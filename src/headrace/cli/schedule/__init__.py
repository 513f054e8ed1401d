"""`headrace schedule`: periodic work."""
