"""All operations of the registry: importing it registers them."""

from headrace.schemas.operations import (
    compatibility,
    schemas,
    server,
    settings,
    subjects,
    summaries,
    tags,
    transfer,
    versions,
)
from headrace.schemas.operations.table import OPERATIONS, FoundOperation, RegistryOperation, find_operation

__all__ = [
    "OPERATIONS",
    "FoundOperation",
    "RegistryOperation",
    "compatibility",
    "find_operation",
    "schemas",
    "server",
    "settings",
    "subjects",
    "summaries",
    "tags",
    "transfer",
    "versions",
]
