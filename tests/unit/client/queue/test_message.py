import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace.client.errors import QueueFailed
from headrace.client.queue.acks import AckResult
from headrace.client.queue.message import NewMessage, QueueMessage, record_of, records_of
from headrace.client.queue.ranges import RangeMessage
from headrace.client.queue.settings import QueueOptions, check, settings_of
from headrace.config.http_listeners import urls
from headrace.config.queue import queue_settings
from headrace.model.queue_wire import Received

_NOW_S = 1_700_000_000.5


def _headers(message: NewMessage) -> dict[str, bytes | None]:
    return dict(record_of("q", message, _NOW_S).headers)


def test_a_plain_message_says_nothing_but_its_body() -> None:
    record = record_of("q", NewMessage(b"work"), _NOW_S)
    assert record.headers == []
    assert (record.topic, record.value, record.key, record.partition) == ("q", b"work", None, 0)


def test_the_options_become_headers() -> None:
    headers = _headers(
        NewMessage({"a": 1}, delay=1.5, priority=9, group="g", dedupe="d", ttl=timedelta(minutes=1), headers={"x": "y"})
    )
    assert headers == {
        "x": b"y",
        "content-type": b"application/json",
        "hr.priority": b"9",
        "hr.due": b"1700000002000",
        "hr.expires": b"1700000060500",
        "hr.group": b"g",
        "hr.dedupe": b"d",
    }


def test_messages_that_differ_in_their_bodies() -> None:
    records = list(records_of("q", [b"a", "b", {"c": 1}, None, "d"], NewMessage(None, priority=9), _NOW_S))
    assert [each.value for each in records] == [b"a", b"b", b'{"c":1}', b"", b"d"]
    assert [dict(each.headers).get("content-type") for each in records] == [
        None,
        b"text/plain; charset=utf-8",
        b"application/json",
        None,
        b"text/plain; charset=utf-8",
    ]
    assert all(dict(each.headers)["hr.priority"] == b"9" for each in records)
    own = NewMessage(None, headers={"content-type": "text/csv"})
    assert next(records_of("q", ["b"], own, _NOW_S)).headers == [("content-type", b"text/csv")]


def test_a_group_is_the_key_of_the_record() -> None:
    assert record_of("q", NewMessage("x", group="g"), _NOW_S).key == b"g"


def test_delivery_at_a_time() -> None:
    when = datetime(2030, 1, 1, tzinfo=UTC)
    assert _headers(NewMessage("x", at=when))["hr.due"] == b"%d" % round(when.timestamp() * 1000)


@pytest.mark.parametrize(
    "message",
    [
        NewMessage("x", priority=10),
        NewMessage("x", priority=-1),
        NewMessage("x", delay=-1),
        NewMessage("x", ttl=0),
        NewMessage("x", delay=1, at=datetime.now(UTC)),
        NewMessage("x", at=datetime(2030, 1, 1)),
        NewMessage("x", headers={"hr.id": "mine"}),
    ],
)
def test_options_that_make_no_sense_are_refused(message: NewMessage) -> None:
    with pytest.raises(ValueError, match=r"priority|delay|ttl|zone|hr\."):
        record_of("q", message, _NOW_S)


class _Said:
    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def _say(self, *call: object) -> AckResult:
        self.calls.append(call)
        settlement = AckResult(threading.Condition())
        settlement.settle(None)
        return settlement

    def ack(self, message: str | RangeMessage) -> AckResult:
        return self._say("ack", message)

    def nack(self, receipt: str, delay_ms: int | None, reason: str) -> AckResult:
        return self._say("nack", receipt, delay_ms, reason)

    def extend(self, receipt: str, visibility_ms: int) -> AckResult:
        return self._say("extend", receipt, visibility_ms)


def test_what_a_receiver_says_and_reads() -> None:
    said = _Said()
    origin = '{"queue": "emails", "offset": 7, "reason": "ValueError: no"}'
    found = Received(
        "id", "r", b'{"a": 1}', 3, 1_000, 2, 1_500, 9_000, origin=origin, headers=(("x", b"y"), ("n", None))
    )
    message = QueueMessage("emails-dead", found, said)
    assert message.json() == {"a": 1}
    assert message.header("x") == "y"
    assert message.header("n") is None
    assert message.came_from == "emails"
    assert message.reason == "ValueError: no"
    assert message.sent_at == datetime.fromtimestamp(1, UTC)
    assert not message.is_settled
    message.extend(timedelta(minutes=1))
    message.nack(delay=0.5, reason="busy")
    assert message.is_settled
    message.ack()
    assert said.calls == [("extend", "r", 60_000), ("nack", "r", 500, "busy"), ("ack", "r")]


def test_an_origin_that_is_not_ours_is_none() -> None:
    message = QueueMessage("q", Received("id", "r", b"", 3, 1, 2, 3, 4, origin="[]"), _Said())
    assert message.reason is None


def test_settings_in_words_are_settings_of_queues() -> None:
    options = QueueOptions(
        type="fifo",
        visibility=5,
        delay=timedelta(seconds=1),
        retention=3600,
        max_receives=3,
        dead_letter="dead",
        backoff=0.5,
        backoff_factor=3.0,
        backoff_max=60,
        jitter=0.0,
        priority_ageing=10,
        dedupe_by_content=True,
        max_in_flight=7,
        settings={"queue.receive.wait.ms": "100"},
    )
    found = queue_settings({f"queue.{name}": value for name, value in settings_of(options).items()})
    assert (found.visibility_timeout_ms, found.delay_ms, found.retention_ms) == (5_000, 1_000, 3_600_000)
    assert (found.retry_backoff_ms, found.retry_backoff_factor, found.retry_backoff_max_ms) == (500, 3.0, 60_000)
    assert (found.max_receives, found.dead_letter, found.retry_jitter) == (3, "dead", 0.0)
    assert (found.priority_ageing_ms, found.max_in_flight, found.receive_wait_ms) == (10_000, 7, 100)
    assert found.is_fifo
    assert found.dedupe_by_content


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(TypeError, match="visibilty"):
        settings_of({"visibilty": 5})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(ValueError, match=r"queue\.nothing"):
        settings_of({"settings": {"queue.nothing": "1"}})


def test_addresses_of_brokers() -> None:
    assert urls("", "broker1") == []
    assert urls("127.0.0.1:9324", "broker1") == ["http://127.0.0.1:9324"]
    assert urls("HTTP://0.0.0.0:9324, https://queues.example.org:443", "broker1") == [
        "http://broker1:9324",
        "https://queues.example.org:443",
    ]
    assert urls("http://[::]:80", "::1") == ["http://[::1]:80"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"delay": "5m"}, "a time must be a number of seconds or a timedelta, not '5m'"),
        ({"ttl": "1h"}, "a time must be a number of seconds"),
        ({"at": "tomorrow"}, "at must be a datetime, not 'tomorrow'"),
        ({"priority": "high"}, "priority must be 0 to 9, not 'high'"),
    ],
)
def test_an_option_of_the_wrong_type_is_told_in_words(options: dict[str, Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        record_of("q", NewMessage("x", **options), _NOW_S)


def test_values_that_a_setting_cannot_have_are_refused_as_a_broker_would() -> None:
    check({"max.receives": "3", "dead.letter": "dead"})
    with pytest.raises(QueueFailed, match=r"queue\.max\.receives=-1 is out of range"):
        check({"dead.letter": "dead", "max.receives": "-1"})
