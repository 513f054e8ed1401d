"""The command `headrace quota`."""
