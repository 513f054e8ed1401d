"""Ids, errors and the cluster image: the types that every other layer uses."""
