"""`headrace produce`."""
