"""Values that are read before they are asked for: what fails is raised by `value`, and waits for nothing again."""

from typing import Any

import pytest

from headrace.client.errors import InvalidMessage, Unreachable
from headrace.client.message import Message


class _Reader:
    def __init__(self, *results: Any) -> None:
        self.results = [*results]

    def read(self, data: bytes | None, headers: object) -> Any:
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


def _message(reader: _Reader | None) -> Message:
    return Message("t", 0, 0, b"x", _reader=reader)


@pytest.mark.parametrize("error", [InvalidMessage("no"), Unreachable("gone"), RecursionError("deep"), TypeError("odd")])
def test_any_failure_is_raised_by_the_value_without_reading_again(error: Exception) -> None:
    reader = _Reader(error)
    message = _message(reader)
    message.read_ahead()
    for _ in range(2):
        with pytest.raises(type(error)):
            _ = message.value


def test_when_the_registry_does_not_answer_the_others_do_not_wait_for_it() -> None:
    reader = _Reader(7, Unreachable("gone"), 8)
    first, second, third = (_message(reader) for _ in range(3))
    unreachable = third.read_ahead(second.read_ahead(first.read_ahead()))
    assert (first.value, len(reader.results)) == (7, 1)
    assert isinstance(unreachable, Unreachable)
    with pytest.raises(Unreachable):
        _ = third.value


def test_without_a_type_nothing_is_read() -> None:
    assert _message(None).read_ahead(Unreachable("gone")) is None
