"""Properties of the rules of compatibility."""
