"""librdkafka behind the few calls that the SDK makes."""
