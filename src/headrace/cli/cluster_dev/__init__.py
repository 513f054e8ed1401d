"""`headrace cluster dev`."""
