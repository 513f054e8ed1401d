"""What this broker and the cluster are doing: metrics, snapshots, lag, history and health."""
