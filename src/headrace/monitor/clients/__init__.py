"""The metrics that clients push to brokers (KIP-714): what is subscribed to, and what has arrived."""
