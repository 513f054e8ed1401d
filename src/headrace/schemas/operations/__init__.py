"""The operations of the registry: one file for each group of paths of its REST API."""
