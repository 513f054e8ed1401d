"""Reports of a pipeline to the brokers, and what they answer: stop, start, replay dead letters."""
