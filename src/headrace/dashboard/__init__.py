"""The dashboard: pages for a browser at `/ui`, which use the HTTP API under `/api/v1`."""
