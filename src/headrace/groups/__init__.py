"""Group coordination: membership, assignments and committed offsets."""
