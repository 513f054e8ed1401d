"""Pytest fixtures, found by pytest once `headrace` is installed."""
