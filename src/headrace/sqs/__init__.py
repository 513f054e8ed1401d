"""The SQS API: JSON 1.0 and the older query protocol, on one HTTP endpoint."""
