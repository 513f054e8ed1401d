"""Browsing, filtering, tailing, downloading and producing messages against a real broker."""

import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from confluent_kafka import Producer

from headrace.testing import Broker

from .api import call


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


def get(broker: Broker, path: str, **query: object) -> Any:
    text = "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
    answer = call(broker.http_url, "GET", f"{path}?{text}")
    assert answer.status == 200, answer
    return answer.value


def create(broker: Broker, name: str, partitions: int = 1, **settings: str) -> str:
    texts = {key.replace("_", "."): value for key, value in settings.items()}
    body = {"name": name, "partitions": partitions, "settings": texts}
    assert call(broker.http_url, "POST", "/topics", value=body).status == 201
    return f"/topics/{name}/messages"


def produce(broker: Broker, topic: str, values: list[bytes | None], **options: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "zstd"})
    for number, value in enumerate(values):
        producer.produce(topic, value, timestamp=1_700_000_000_000 + number, **options)
    assert producer.flush(30) == 0


def test_the_newest_come_first_and_pages_have_no_gap(broker: Broker) -> None:
    path = create(broker, "pages", 3)
    for number in range(3):
        produce(broker, "pages", [f"{number}-{each}".encode() for each in range(40)], partition=number)
    seen: list[tuple[int, int]] = []
    cursor = ""
    while True:
        page = get(broker, path, limit=25, cursor=cursor)
        assert [each["timestamp_ms"] for each in page["items"]] == sorted(
            (each["timestamp_ms"] for each in page["items"]), reverse=True
        )
        seen += [(each["partition"], each["offset"]) for each in page["items"]]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert sorted(seen) == [(partition, offset) for partition in range(3) for offset in range(40)]
    assert len(seen) == len(set(seen))


def test_forwards_from_an_offset_or_a_time(broker: Broker) -> None:
    path = create(broker, "forwards")
    produce(broker, "forwards", [str(number).encode() for number in range(50)])
    page = get(broker, path, **{"from": "offset:10", "limit": 5})
    assert [each["value"] for each in page["items"]] == ["10", "11", "12", "13", "14"]
    page = get(broker, path, cursor=page["next"], limit=3)
    assert [each["value"] for each in page["items"]] == ["15", "16", "17"]
    page = get(broker, path, **{"from": "time:2023-11-14T22:13:20.045Z", "limit": 100})
    assert [each["value"] for each in page["items"]] == ["45", "46", "47", "48", "49"]
    assert page["is_complete"] is True
    # There is always more to come: the cursor goes on where this page ended.
    produce(broker, "forwards", [b"new"])
    assert [each["value"] for each in get(broker, path, cursor=page["next"])["items"]] == ["new"]
    assert get(broker, path, **{"from": "earliest", "limit": 1})["items"][0]["offset"] == 0


@pytest.mark.parametrize("start", ["yesterday", "offset:-1", "offset:x", "time:soon", ""])
def test_a_wrong_start_is_refused(broker: Broker, start: str) -> None:
    create(broker, f"starts-{abs(hash(start))}")
    answer = call(broker.http_url, "GET", f"/topics/starts-{abs(hash(start))}/messages?from={start}")
    assert (answer.status, answer.value["error"]) == (400, "invalid_request")


def test_filters_are_data(broker: Broker) -> None:
    path = create(broker, "filtered")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(100):
        document = {"number": number, "order": {"items": [{"sku": "tea" if number % 10 == 0 else "milk"}]}, "ok": True}
        producer.produce(
            "filtered",
            json.dumps(document),
            key=f"key-{number}",
            headers={"kind": "even" if number % 2 == 0 else "odd"},
        )
    producer.produce("filtered", b"no json")
    producer.flush(30)

    def numbers(**query: object) -> list[int]:
        page = get(broker, path, **{"from": "earliest", "limit": 500, **query})
        return [json.loads(each["value"])["number"] for each in page["items"]]

    assert numbers(json_path="$.order.items[0].sku", json_equals="tea") == list(range(0, 100, 10))
    assert numbers(json_path="number", json_equals="7") == [7]
    assert numbers(json_path="$['number']", json_equals="7.0") == [7]
    assert len(numbers(json_path="$.ok", json_equals="true")) == 100
    assert numbers(json_path="$.ok", json_equals="1") == []
    assert len(numbers(json_path="$.order")) == 100
    assert numbers(json_path="$.missing") == []
    assert numbers(key_contains="key-9", header="kind:even") == [90, 92, 94, 96, 98]
    assert len(numbers(header="kind")) == 100
    assert numbers(value_contains='"number": 42,') == [42]
    backwards = get(broker, path, limit=2, key_contains="key-1")
    assert [each["key"] for each in backwards["items"]] == ["key-19", "key-18"]
    for path_text in ("$.a[", "$..a", "$.a b", "a" + ".b" * 40, "__import__('os')"):
        refused = call(broker.http_url, "GET", f"{path}?json_path={quote(path_text)}")
        assert (refused.status, refused.value["error"]) == (400, "invalid_request")


def test_payloads_are_shown_as_what_they_are(broker: Broker) -> None:
    path = create(broker, "payloads")
    avro = b"\0" + struct.pack(">i", 17) + b"\x02\xff\xfe"
    json_schema = b"\0" + struct.pack(">i", 18) + b'{"a":1}'
    values = [
        b'{"big":12345678901234567890.10,"a":[1]}',
        "Grüße\n".encode(),
        b"\xff\x00\x01",
        b"",
        None,
        avro,
        json_schema,
        struct.pack(">q", 5),
        b"<script>alert(1)</script>",
        b"[" * 5000,
    ]
    produce(broker, "payloads", values)
    items = get(broker, path, **{"from": "earliest"})["items"]
    shown = [(each["value_encoding"], each["value"], each["schema_id"]) for each in items]
    assert shown[0] == ("json", '{\n  "big": 12345678901234567890.10,\n  "a": [\n    1\n  ]\n}', None)
    assert shown[1] == ("text", "Grüße\n", None)
    assert (shown[2][0], b64decode(shown[2][1])) == ("base64", values[2])
    assert shown[3] == ("text", "", None)
    assert shown[4] == (None, None, None)
    assert (shown[5][0], b64decode(shown[5][1]), shown[5][2]) == ("base64", avro, 17)
    assert shown[6] == ("json", '{\n  "a": 1\n}', 18)
    assert (shown[7][0], shown[7][2]) == ("base64", None)
    assert shown[8] == ("text", "<script>alert(1)</script>", None)
    assert shown[9][0] == "text"
    assert [each["size_bytes"] for each in items] == [len(value or b"") for value in values]


def test_large_values_are_cut(broker: Broker) -> None:
    path = create(broker, "large", max_message_bytes="3000000")
    assert call(broker.http_url, "POST", path, value={"value": "ü" * 500_000}).status == 201
    (item,) = get(broker, path)["items"]
    assert (item["truncated"], item["size_bytes"], item["value_encoding"]) == (True, 1_000_000, "text")
    assert len(item["value"].encode()) in range(65_530, 65_537)
    (whole,) = get(broker, path, max_value_bytes=1024 * 1024)["items"]
    assert (whole["truncated"], whole["value"]) == (False, "ü" * 500_000)


def test_many_large_messages_are_read_from_the_end(broker: Broker) -> None:
    path = create(broker, "heavy", max_message_bytes="3000000")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 2_000_000})
    for number in range(40):
        producer.produce("heavy", (b"%02d" % number) * 250_000)
    producer.flush(60)
    page = get(broker, path, limit=50, max_value_bytes=2)
    assert [each["value"] for each in page["items"]][:3] == ["39", "38", "37"]
    seen = [each["offset"] for each in page["items"]]
    while page["next"]:
        page = get(broker, path, limit=50, max_value_bytes=2, cursor=page["next"])
        seen += [each["offset"] for each in page["items"]]
    assert seen == list(range(39, -1, -1))


def test_batches_that_are_compressed_a_thousand_times_are_read_within_bounds(broker: Broker) -> None:
    path = create(broker, "bomb")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "zstd", "linger.ms": 200})
    for number in range(300):
        producer.produce("bomb", (b"%03d" % number) + bytes(300_000))
        producer.poll(0)
    producer.flush(60)
    seen: list[int] = []
    page = get(broker, path, limit=500, max_value_bytes=3)
    assert page["items"][0]["offset"] == 299
    seen += [each["offset"] for each in page["items"]]
    while page["next"]:
        page = get(broker, path, limit=500, max_value_bytes=3, cursor=page["next"])
        seen += [each["offset"] for each in page["items"]]
    assert seen == list(range(299, -1, -1))
    page = get(broker, path, **{"from": "earliest", "limit": 500, "max_value_bytes": 3})
    assert page["is_complete"] is False
    assert len(page["items"]) < 200


def test_aborted_and_open_transactions_are_not_shown(broker: Broker) -> None:
    path = create(broker, "transactional")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "browse"})
    producer.init_transactions(30)
    for value, ends in (("kept", True), ("aborted", False), ("also kept", True)):
        producer.begin_transaction()
        producer.produce("transactional", value)
        producer.commit_transaction(30) if ends else producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce("transactional", "open")
    producer.flush(30)
    for start in ("earliest", "latest"):
        page = get(broker, path, **{"from": start})
        assert sorted(each["value"] for each in page["items"]) == ["also kept", "kept"]
    producer.abort_transaction(30)


def test_producing(broker: Broker) -> None:
    path = create(broker, "produced", 4)
    sent = call(
        broker.http_url, "POST", path, value={"key": "alice", "value": "tea", "headers": [["a", "b"], ["n", None]]}
    )
    assert sent.status == 201
    again = call(broker.http_url, "POST", path, value={"key": "alice", "value": None})
    assert again.value["partition"] == sent.value["partition"]
    raw = {"value": b64encode(b"\xff").decode(), "value_encoding": "base64", "partition": 2}
    assert call(broker.http_url, "POST", path, value=raw).value["partition"] == 2
    items = get(broker, path, partition=sent.value["partition"], **{"from": "earliest"})["items"]
    assert (items[0]["key"], items[0]["value"], items[0]["headers"]) == ("alice", "tea", [["a", "b"], ["n", None]])
    assert items[1]["value"] is None
    for wrong in (
        {"value": "%", "value_encoding": "base64"},
        {"value": "{", "value_encoding": "json"},
        {"value": "x", "partition": -1},
        {"val": "x"},
    ):
        assert call(broker.http_url, "POST", path, value=wrong).status == 400
    assert call(broker.http_url, "POST", path, value={"value": "x", "partition": 9}).status == 404
    assert call(broker.http_url, "POST", "/topics/missing/messages", value={"value": "x"}).status == 404


def test_download(broker: Broker) -> None:
    create(broker, "downloaded", 2)
    produce(broker, "downloaded", [f'{{"n":{number}}}'.encode() for number in range(700)])
    answer = call(broker.http_url, "GET", "/topics/downloaded/download?limit=1000")
    assert answer.headers["content-disposition"] == 'attachment; filename="downloaded.ndjson"'
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in answer.value.splitlines()]
    assert sorted(json.loads(each["value"])["n"] for each in lines) == list(range(700))
    some = call(broker.http_url, "GET", "/topics/downloaded/download?limit=5&value_contains=69")
    assert len(some.value.splitlines()) == 5


def test_a_tail_shows_messages_as_they_arrive_and_goes_on_where_it_was(broker: Broker) -> None:
    create(broker, "tailed", 2)
    produce(broker, "tailed", [b"before"])
    with TailStream(broker, "/topics/tailed/tail?value_contains=a") as tail:
        assert tail.next_event()[0] == "progress"
        produce(broker, "tailed", [b"apple", b"plum", b"pear"])
        values: list[str] = []
        last_id = ""
        while len(values) < 2:
            name, data, event_id = tail.next_event()
            last_id = event_id or last_id
            if name == "message":
                values.append(data["value"])
        assert sorted(values) == ["apple", "pear"]
        while not (event_id := tail.next_event()[2]):
            pass
    produce(broker, "tailed", [b"banana"])
    with TailStream(broker, "/topics/tailed/tail?value_contains=a", last_event_id=event_id) as tail:
        assert next(data["value"] for name, data, _ in iter(tail.next_event, None) if name == "message") == "banana"


class TailStream:
    """Reads the events of a stream."""

    def __init__(
        self,
        broker: Broker,
        path: str,
        last_event_id: str = "",
        cookie: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._connection = HTTPConnection(urlsplit(broker.http_url).netloc, timeout=30)
        given = {"Last-Event-ID": last_event_id, "Cookie": cookie, **(headers or {})}
        sent = {name: text for name, text in given.items() if text}
        self._connection.request("GET", f"/api/v1{path}", headers=sent)
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200
        assert self._answer.headers["content-type"].startswith("text/event-stream")
        assert self._line() == "retry: 2000"
        assert self._line() == ""

    def close(self) -> None:
        self._answer.close()
        self._connection.close()

    def __enter__(self) -> "TailStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _line(self) -> str:
        return self._answer.readline().decode().rstrip("\n")

    def next_event(self) -> tuple[str, Any, str]:
        name, event_id, data = "message", "", None
        while True:
            line = self._line()
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("id: "):
                event_id = line.removeprefix("id: ")
            elif line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "))
            elif not line and data is not None:
                return name, data, event_id
