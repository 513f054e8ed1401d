"""Reading topics: options, offsets and records, and the Spark data source `headrace`."""
