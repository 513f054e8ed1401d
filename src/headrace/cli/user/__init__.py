"""The command `headrace user`."""
