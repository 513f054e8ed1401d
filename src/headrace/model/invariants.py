"""Statements that must hold in every run; see `docs/invariants.md` for the numbered list."""


class InvariantViolation(AssertionError):
    """Headrace found itself in a state that its design rules out. Going on could damage data."""


def invariant(holds: bool, number: int, what: str) -> None:
    """Raise unless `holds`. Kept on in production: the checks are cheap and guard acknowledged data."""
    if not holds:
        raise InvariantViolation(f"invariant {number}: {what}")
