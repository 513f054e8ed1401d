"""The command `headrace acl`."""
