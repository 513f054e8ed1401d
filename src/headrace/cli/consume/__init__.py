"""`headrace consume`."""
