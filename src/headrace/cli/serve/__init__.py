"""`headrace serve`."""
