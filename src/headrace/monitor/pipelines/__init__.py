"""Pipelines as they report themselves: stored in `__pipelines`, shown and controlled by any broker."""
