"""A bound on the work for one request: hostile schemas are small and take exponential time. Pure."""

from headrace.schemas.errors import SchemaTooComplex

MAX_STEPS = 200_000
"""About half a second. The largest schemas in use take a few thousand."""
MAX_DEPTH = 200
CHARS_OF_A_STEP = 500
"""Text of this length takes as long to read or write as a step."""


class StepLimit:
    """Counts steps, and raises `SchemaTooComplex` beyond the limit."""

    __slots__ = ("_left",)

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self._left = steps

    def step(self, depth: int = 0, cost: int = 1) -> None:
        self._left -= cost
        if self._left < 0:
            raise SchemaTooComplex("the schema is too complex: checking it takes too many steps")
        if depth > MAX_DEPTH:
            raise SchemaTooComplex(f"the schema is nested more than {MAX_DEPTH} deep")
