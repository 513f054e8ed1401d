"""Runtime checks of the invariants in `docs/invariants.md`."""


class InvariantViolation(AssertionError):
    """A state that the design rules out. Continuing could corrupt data."""


def invariant(holds: bool, number: int, what: str) -> None:
    """Raise unless `holds`. Active in production: the checks are cheap and protect acknowledged data."""
    if not holds:
        raise InvariantViolation(f"invariant {number}: {what}")
