"""The schema registry over HTTP: the REST API of Confluent's registry."""
