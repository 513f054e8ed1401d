"""`headrace cert`."""
