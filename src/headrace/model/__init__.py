"""Ids, errors and the cluster image: the words every other layer uses."""
