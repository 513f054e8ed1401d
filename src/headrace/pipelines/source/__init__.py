"""Topics as a Spark data source."""
