"""Values of topics as Arrow columns, in bulk: what the formats with schemas share."""
