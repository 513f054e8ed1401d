"""A queue on the broker that leads its partition: its log, its persisted state, sends and receives."""
