"""The Spark data source `headrace`. Spark finds it by the name of this package, wherever it is installed."""
