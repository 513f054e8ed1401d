"""`headrace audit`."""
