"""Imports kio without hypothesis, which only its tests need."""

import sys


def load_kio() -> None:
    """Import kio without hypothesis, which it would load where it is installed, to offer strategies of its own types.

    That takes a quarter of a second and leaves the folder `.hypothesis` in the user's working directory. A program that
    uses hypothesis has loaded it before, or loads it later: it is hidden from kio only.
    """
    if "hypothesis" in sys.modules or "kio.static.primitive" in sys.modules:
        return
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401
    finally:
        del sys.modules["hypothesis"]
