"""Log lines as text and as JSON."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from headrace.observe.logs import JSON, MAX_LINE_BYTES, TEXT, configure
from headrace.observe.request_mark import mark_task, thread_mark

log = logging.getLogger("headrace.test_logs")


class Request(NamedTuple):
    request_id: str = "10.1.2.3:5555/42"
    client: str = "shop 10.1.2.3:5555"


@pytest.fixture(autouse=True)
def _logger_as_before() -> Iterator[None]:
    root = logging.getLogger("headrace")
    before = (root.handlers[:], root.level, root.propagate)
    yield
    root.handlers[:], root.level, root.propagate = before
    thread_mark().request = None


def written(log_format: str) -> io.StringIO:
    stream = io.StringIO()
    configure("info", stream, log_format=log_format, broker_id=7)
    return stream


def only_line(stream: io.StringIO) -> dict[str, Any]:
    (line,) = stream.getvalue().splitlines()
    assert len(line.encode()) <= MAX_LINE_BYTES
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_line_of_json_has_time_level_logger_message_and_broker() -> None:
    stream = written(JSON)
    log.warning("%d topics\nare offline", 3)
    line = only_line(stream)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "WARNING",
        "logger": "headrace.test_logs",
        "message": "3 topics\nare offline",
        "broker_id": 7,
    }


def test_lines_of_a_request_carry_its_id_and_client() -> None:
    thread_mark().request = Request()
    stream = written(JSON)
    log.info("handled")
    assert only_line(stream)["request_id"] == "10.1.2.3:5555/42"
    assert only_line(stream)["client"] == "shop 10.1.2.3:5555"

    stream = written(TEXT)
    log.info("handled")
    assert stream.getvalue().endswith(" INFO    handled (request 10.1.2.3:5555/42)\n")

    thread_mark().request = None
    stream = written(TEXT)
    log.info("handled")
    assert stream.getvalue().endswith(" INFO    handled\n")


async def _line_in_task(stream: io.StringIO) -> str:
    stream.seek(0)
    stream.truncate()
    log.info("in a task")
    return stream.getvalue()


def test_background_work_of_a_request_loses_its_id_when_the_request_ends() -> None:
    import asyncio

    async def main() -> tuple[str, str]:
        mark = mark_task(Request())
        during = await asyncio.create_task(_line_in_task(stream))
        mark.request = None
        return during, await asyncio.create_task(_line_in_task(stream))

    stream = written(TEXT)
    during, after = asyncio.run(main())
    assert "(request 10.1.2.3:5555/42)" in during
    assert "request" not in after


def test_the_stack_of_an_error_is_one_field() -> None:
    stream = written(JSON)
    try:
        raise ValueError("no such\nthing")
    except ValueError:
        log.exception("it failed")
    line = only_line(stream)
    assert line["message"] == "it failed"
    assert line["error"].startswith("Traceback (most recent call last):\n")
    assert line["error"].endswith("ValueError: no such\nthing")


@pytest.mark.parametrize("character", ["x", "é", "\0", "\U0001f642", "\udc80"])
def test_a_line_is_bounded_whatever_it_says(character: str) -> None:
    thread_mark().request = Request(client=character * 100_000)
    stream = written(JSON)
    try:
        raise ValueError(character * 100_000)
    except ValueError:
        log.exception(character * 100_000, extra={"fields": {"path": character * 100_000}})
    line = only_line(stream)
    assert " … " in line["message"]
    assert line["error"].startswith("Traceback")
