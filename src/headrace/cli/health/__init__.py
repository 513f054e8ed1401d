"""`headrace health`: the problems of a cluster, and what to do about them."""
