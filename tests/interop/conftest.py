"""The fixtures of `fixtures.py`, which `tests/faults` uses, too."""

from .fixtures import *  # noqa: F403
