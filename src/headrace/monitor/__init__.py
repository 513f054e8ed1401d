"""What this broker and the cluster are doing: snapshots, lag, history and health."""
