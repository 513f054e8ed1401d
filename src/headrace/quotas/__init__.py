"""Client quotas: who may use how much, how much each client uses, and how long it has to wait."""
