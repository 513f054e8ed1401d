"""Share groups (KIP-932) on the leader of a partition."""
