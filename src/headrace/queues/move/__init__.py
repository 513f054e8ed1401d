"""Messages from one queue to another: dead letters and redrives, each exactly once."""
