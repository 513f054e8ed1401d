"""The result of an operation on a coordinator's shard. Pure."""

from typing import Generic, TypeVar

from headrace.model.errors import HeadraceError

A = TypeVar("A")


class Result(Generic[A]):
    """An answer, or the error that the operation failed with."""

    __slots__ = ("answer", "error")

    def __init__(self, answer: A | None = None, error: HeadraceError | None = None) -> None:
        self.answer = answer
        self.error = error

    def get(self) -> A:
        if self.error is not None:
            raise self.error
        return self.answer  # type: ignore[return-value]
