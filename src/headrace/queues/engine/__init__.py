"""The engine of one queue: which message may be received, by which receiver, and when. Pure: no I/O, no clock."""
