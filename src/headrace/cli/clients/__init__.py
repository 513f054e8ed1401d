"""`headrace clients`: metrics that clients push to the brokers."""
