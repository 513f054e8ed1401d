"""For the tests of applications: a real broker in a `with` block, and pytest fixtures (see `plugin.py`)."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> object:
    # Pytest imports this package at the start of every run, also of those that use no broker: so it loads late.
    if name == "Broker":
        from headrace.testing.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
