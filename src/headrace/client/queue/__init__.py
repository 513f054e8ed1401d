"""`client.queue(…)`: send, receive, acknowledge, and workers."""
