"""`headrace top`: what a cluster is doing, live in the terminal."""
