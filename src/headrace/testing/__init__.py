"""Test support for applications: a real broker in a `with` block, and pytest fixtures (see `plugin.py`)."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.testing.broker import Broker

__all__ = ["Broker"]


def __getattr__(name: str) -> object:
    # Pytest imports this package in every run, also in those that use no broker: so the broker is imported lazily.
    if name == "Broker":
        from headrace.testing.broker import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
