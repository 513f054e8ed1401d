"""Pipeline files: parsed and checked, with the line of each error. Needs no Spark."""
