"""Records that do not fit or fail: written, listed and sent back."""
