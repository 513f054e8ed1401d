"""The engine of one queue: which message may be received by whom, and when. Pure: no I/O, no clock."""
