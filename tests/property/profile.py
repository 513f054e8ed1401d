"""How many examples a property gets: its own number in `make test`, and many times as many under `make faults`."""

from hypothesis import settings

_USUAL = 100
"""What hypothesis gives a property that says nothing."""


def examples(usual: int) -> int:
    """`usual`, times what the chosen profile has beyond the usual one: a number of its own would hide the profile."""
    return usual * settings().max_examples // _USUAL
