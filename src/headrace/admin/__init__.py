"""The HTTP API for administration under `/api/v1`: JSON for the command line, scripts and pages."""
