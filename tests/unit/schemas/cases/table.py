"""One row of a table of compatibility."""

from typing import NamedTuple


class CompatibilityCase(NamedTuple):
    """An old and a new schema, with the change that breaks readers; an empty text where nothing does."""

    reason: str
    """The rule, in the words of its specification."""
    old: str
    new: str
    backward: str = ""
    """The change that keeps the new schema from reading data of the old one."""
    forward: str = ""
    """The change that keeps the old schema from reading data of the new one."""
