"""The largest matching of a bipartite graph. Pure."""

from collections.abc import Sequence

from headrace.schemas.steps import StepLimit


def largest_matching(fitting: Sequence[Sequence[int]], size: int, steps: StepLimit) -> int:
    """How many left nodes can each get a right node of their own; `fitting` has the right nodes of each left one."""
    taken: list[int | None] = [None] * size

    def place(left: int, tried: set[int]) -> bool:
        for right in fitting[left]:
            if right in tried:
                continue
            steps.step(len(tried))
            tried.add(right)
            holder = taken[right]
            if holder is None or place(holder, tried):
                taken[right] = left
                return True
        return False

    return sum(place(left, set()) for left in range(len(fitting)))
