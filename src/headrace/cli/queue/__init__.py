"""`headrace queue`."""
