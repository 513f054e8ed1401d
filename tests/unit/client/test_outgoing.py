from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from headrace.client.message import Message
from headrace.client.outgoing import Outgoing, ProducerRecord, encode

NOW = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)


def encoded(outgoing: Outgoing) -> ProducerRecord:
    return encode(outgoing, default_source="/shop", new_id=lambda: "id-1", now=NOW)


def as_message(record: ProducerRecord) -> Message:
    return Message(record.topic, 0, 7, record.value, record.key, tuple(record.headers), 5)


def test_payloads() -> None:
    @dataclass
    class Order:
        item: str

    cases = [
        (b"\x00raw", b"\x00raw", None),
        ("grüß", "grüß".encode(), "text/plain; charset=utf-8"),
        ({"a": [1, None]}, b'{"a":[1,null]}', "application/json"),
        (3, b"3", "application/json"),
        (Order("tea"), b'{"item":"tea"}', "application/json"),
        (None, None, None),
    ]
    for payload, value, content_type in cases:
        record = encoded(Outgoing("t", payload))
        assert record.value == value
        assert as_message(record).content_type == content_type


def test_what_json_cannot_say_is_refused() -> None:
    with pytest.raises(TypeError):
        encoded(Outgoing("t", {"x": object()}))


def test_a_plain_message_has_no_event_headers() -> None:
    record = encoded(Outgoing("t", b"x", key="k", headers={"a": "1", "b": None}, correlation_id="c"))
    assert record.headers == [("a", b"1"), ("b", None), ("correlation-id", b"c")]
    assert record.key == b"k"
    message = as_message(record)
    assert (message.type, message.correlation_id, message.id) == (None, "c", "t/0/7")


def test_a_typed_message_is_a_cloud_event_in_binary_mode() -> None:
    record = encoded(Outgoing("t", {"n": 1}, type="order.placed", correlation_id="c", subject="o-1"))
    assert dict(record.headers) == {
        "content-type": b"application/json",
        "ce_specversion": b"1.0",
        "ce_id": b"id-1",
        "ce_source": b"/shop",
        "ce_type": b"order.placed",
        "ce_time": b"2026-01-31T12:00:00.123Z",
        "ce_subject": b"o-1",
        "ce_correlationid": b"c",
    }
    message = as_message(record)
    assert (message.type, message.source, message.subject) == ("order.placed", "/shop", "o-1")
    assert (message.id, message.correlation_id, message.json()) == ("/shop#id-1", "c", {"n": 1})


def test_the_users_own_header_wins() -> None:
    record = encoded(Outgoing("t", "x", headers=[("content-type", "text/html"), ("ce_id", "mine")], type="y"))
    assert [value for name, value in record.headers if name == "content-type"] == [b"text/html"]
    assert as_message(record).id == "/shop#mine"


def test_timestamps() -> None:
    assert encoded(Outgoing("t", None, timestamp=1700000000123)).timestamp_ms == 1700000000123
    assert encoded(Outgoing("t", None, timestamp=NOW)).timestamp_ms == 1769860800123
    assert encoded(Outgoing("t", None)).timestamp_ms is None
    event = as_message(encoded(Outgoing("t", None, timestamp=0, type="x")))
    assert event.header("ce_time") == "1970-01-01T00:00:00.000Z"


def test_a_message_reads_its_headers() -> None:
    headers = (("h", b"1"), ("h", b"2"), ("n", None), ("headrace-attempts", b"3"), ("headrace-not-before", b"soon"))
    message = Message("t", 1, 2, None, headers=headers, timestamp_ms=1769860800123)
    assert message.header("h") == "2"
    assert message.header("n") is None
    assert message.header("missing") is None
    assert message.failed_attempts == 3
    assert message.not_before_ms == 0
    assert message.text == ""
    assert message.json() is None
    assert message.time == datetime(2026, 1, 31, 12, 0, 0, 123000, tzinfo=UTC)
    message.ack()
