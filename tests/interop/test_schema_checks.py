"""Topics with schema validation: which records a broker refuses, and how it says so."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import KafkaError, Producer

from headrace.testing import Broker
from tests.scraped import scrape
from tests.waiting import until

from . import batches, raw_client
from .batches import Record
from .test_registry import RegistryClient

Error = raw_client.Error
ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "note", "type": "string"}]}
JSON_ORDER = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
PROTO_ORDER = 'syntax = "proto3"; package shop; message Order { string note = 1; message Line { int32 n = 1; } }'
GOOD = b"\x06abc"
"""An Order: a string of three characters."""
CUT = b"\x06ab"
SIX_DIGITS = 999_999

_names = (f"checked-{number}" for number in count())


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made


@pytest.fixture(scope="module")
def registry(broker: Broker) -> RegistryClient:
    return RegistryClient(f"{broker.http_url}/registry")


@pytest.fixture
def connection(broker: Broker) -> Iterator[raw_client.Connection]:
    with raw_client.Connection(broker.bootstrap) as made:
        yield made


def new_topic(broker: Broker, partitions: int = 1, **settings: str) -> str:
    name = next(_names)
    raw_client.create_topic(
        broker.bootstrap, name, partitions, {key.replace("_", "."): text for key, text in settings.items()}
    )
    return name


def framed(number: int, body: bytes = GOOD) -> bytes:
    return b"\0" + number.to_bytes(4) + body


def problems(answer: Any) -> dict[int, str]:
    return {each.batch_index: each.batch_index_error_message for each in answer.record_errors}


def produce(connection: raw_client.Connection, topic: str, records: Sequence[Record | bytes], **batch: Any) -> Any:
    """Produce one batch, and again, as clients do, while the registry does not answer in time."""
    data = batches.batch(records, **batch)

    def answer() -> Any:
        found = raw_client.produce(connection, topic, data)
        return None if found.error_code == Error.not_enough_replicas else found

    return until(answer, "an answer of the registry")


def stored(connection: raw_client.Connection, topic: str) -> list[bytes | None]:
    return batches.values(raw_client.fetch(connection, topic).records)


def set_topic(connection: raw_client.Connection, topic: str, name: str, value: str) -> None:
    change = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [change]}
    answer = connection.call(raw_client.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    assert answer.responses[0].error_code == Error.none


@pytest.mark.parametrize("mode", ["id", "payload"])
def test_records_of_the_subject_pass_and_others_are_named(
    broker: Broker, registry: RegistryClient, connection: raw_client.Connection, mode: str
) -> None:
    topic = new_topic(broker, value_schema_validation=mode)
    own = registry.register(f"{topic}-value", ORDER)
    other = registry.register(f"{topic}-other", {**ORDER, "name": f"Other{mode}"})
    assert produce(connection, topic, [framed(own), Record(None, key=b"tombstone")]).error_code == Error.none

    answer = produce(
        connection, topic, [framed(own), framed(SIX_DIGITS), framed(other), b"plain text", b"", b"\0\0", framed(own)]
    )
    assert answer.error_code == Error.invalid_record
    found = problems(answer)
    assert [*found] == [1, 2, 3, 4, 5]
    assert str(SIX_DIGITS) in found[1]
    assert f"{other} does not belong to the subject {topic}-value" in found[2]
    assert "first byte is 112" in found[3]
    assert "empty" in found[4]
    assert "too short" in found[5]
    assert answer.error_message.startswith("5 of 7 records do not fit; record 1: ")
    assert stored(connection, topic) == [framed(own), None]


def test_only_payload_looks_at_the_bytes(
    broker: Broker, registry: RegistryClient, connection: raw_client.Connection
) -> None:
    by_id = new_topic(broker, value_schema_validation="id")
    by_payload = new_topic(broker, value_schema_validation="payload")
    number = registry.register(f"{by_id}-value", ORDER)
    assert registry.register(f"{by_payload}-value", ORDER) == number
    assert produce(connection, by_id, [framed(number, CUT)]).error_code == Error.none
    answer = produce(connection, by_payload, [framed(number), framed(number, CUT), framed(number, GOOD + b"more")])
    assert answer.error_code == Error.invalid_record
    assert [*problems(answer)] == [1, 2]
    assert "note" in problems(answer)[1]
    assert stored(connection, by_payload) == []


def test_what_json_and_protobuf_say_about_bytes(
    broker: Broker, registry: RegistryClient, connection: raw_client.Connection
) -> None:
    topic = new_topic(broker, value_schema_validation="payload")
    subject = f"{topic}-value"
    registry.call("PUT", f"/config/{subject}", {"compatibility": "NONE"})
    as_json = registry.register(subject, JSON_ORDER, "JSON")
    as_proto = registry.register(subject, PROTO_ORDER, "PROTOBUF")
    good = [framed(as_json, b'{"id": 1}'), framed(as_proto, b"\0\x0a\x01x"), framed(as_proto, b"\x04\0\0\x08\x01")]
    assert produce(connection, topic, good).error_code == Error.none
    bad = [framed(as_json, b'{"id": "x"}'), framed(as_json, b"{"), framed(as_proto, b"\0\x0a\x09x")]
    answer = produce(connection, topic, [*bad, framed(as_proto, b"\x04\0\x02\x08\x01")])
    assert answer.error_code == Error.invalid_record
    assert [*problems(answer)] == [0, 1, 2, 3]
    assert "id" in problems(answer)[0]


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("size", [3, 3000])
def test_batches_of_every_codec_and_size(
    broker: Broker, registry: RegistryClient, connection: raw_client.Connection, codec: int, size: int
) -> None:
    topic = new_topic(broker, value_schema_validation="id")
    number = registry.register(f"{topic}-value", ORDER)
    records: list[Record | bytes] = [framed(number)] * size
    assert produce(connection, topic, records, codec=codec).error_code == Error.none
    records[size // 2] = framed(number + SIX_DIGITS)
    answer = produce(connection, topic, records, codec=codec)
    assert answer.error_code == Error.invalid_record
    assert [*problems(answer)] == [size // 2]
    assert len(stored(connection, topic)) == size


def test_keys_and_values_have_their_own_rules(
    broker: Broker, registry: RegistryClient, connection: raw_client.Connection
) -> None:
    topic = new_topic(broker, key_schema_validation="id", value_schema_validation="payload")
    key = registry.register(f"{topic}-key", {"type": "string"})
    value = registry.register(f"{topic}-value", ORDER)
    assert produce(connection, topic, [Record(framed(value), key=framed(key))]).error_code == Error.none
    assert produce(connection, topic, [Record(framed(value)), Record(None, key=framed(key))]).error_code == Error.none
    answer = produce(connection, topic, [Record(framed(key), key=framed(value)), Record(framed(value), key=b"k")])
    assert answer.error_code == Error.invalid_record
    assert sorted((each.batch_index, each.batch_index_error_message[:5]) for each in answer.record_errors) == [
        (0, "key: "),
        (0, "value"),
        (1, "key: "),
    ]


def test_guids_in_headers(broker: Broker, registry: RegistryClient, connection: raw_client.Connection) -> None:
    topic = new_topic(broker, value_schema_validation="payload")
    registry.register(f"{topic}-value", ORDER)
    guid = UUID(registry.call("GET", f"/subjects/{topic}-value/versions/1")["guid"])

    def record(header: bytes, body: bytes = GOOD) -> Record:
        return Record(body, headers=(("trace", b"1"), ("__value_schema_id", header)))

    assert produce(connection, topic, [record(b"\1" + guid.bytes)] * 2).error_code == Error.none
    answer = produce(
        connection, topic, [record(b"\1" + guid.bytes, CUT), record(b"\1" + bytes(16)), record(b"\1short")]
    )
    assert answer.error_code == Error.invalid_record
    assert [*problems(answer)] == [0, 1, 2]
    assert str(UUID(int=0)) in problems(answer)[1]


@pytest.mark.parametrize(
    ("strategy", "subject"), [("RecordNameStrategy", "{name}"), ("TopicRecordNameStrategy", "{topic}-{name}")]
)
def test_subjects_by_the_name_of_the_record(
    broker: Broker, registry: RegistryClient, connection: raw_client.Connection, strategy: str, subject: str
) -> None:
    topic = new_topic(broker, value_schema_validation="id", value_subject_name_strategy=strategy)

    def register(name: str, schema: Any, kind: str = "AVRO") -> int:
        return registry.register(subject.format(topic=topic, name=name), schema, kind)

    avro = register(f"shop.{strategy}", {**ORDER, "name": strategy})
    as_json = register(f"J{strategy}", {**JSON_ORDER, "title": f"J{strategy}"}, "JSON")
    line = PROTO_ORDER.replace("shop", f"shop{strategy.lower()}")
    proto = register(f"shop{strategy.lower()}.Order.Line", line, "PROTOBUF")
    good = [framed(avro), framed(as_json, b"{}"), framed(proto, b"\x04\0\0\x08\x01")]
    assert produce(connection, topic, good).error_code == Error.none

    elsewhere = registry.register(f"{topic}-value", {**ORDER, "name": "Elsewhere"})
    nameless = registry.register(f"{topic}-value-2", {"type": "string"})
    answer = produce(
        connection, topic, [framed(elsewhere), framed(proto, b"\0\x0a\x01x"), framed(nameless), framed(avro)]
    )
    assert answer.error_code == Error.invalid_record
    assert [*problems(answer)] == [0, 1, 2]
    assert "shop.Elsewhere" in problems(answer)[0]
    assert "Order" in problems(answer)[1]
    assert "no name" in problems(answer)[2]


def test_other_partitions_of_the_request_are_stored(
    broker: Broker, registry: RegistryClient, connection: raw_client.Connection
) -> None:
    checked, free = new_topic(broker, 2, value_schema_validation="id"), new_topic(broker)
    number = registry.register(f"{checked}-value", ORDER)
    body = raw_client.produce_body(checked, batches.batch([b"bad"]))
    body["topic_data"][0]["partition_data"].append({"index": 1, "records": batches.batch([framed(number)])})
    body["topic_data"] += raw_client.produce_body(free, batches.batch([b"anything"]))["topic_data"]
    answer = connection.call(raw_client.PRODUCE, 9, body)
    assert [part.error_code for topic in answer.responses for part in topic.partition_responses] == [
        Error.invalid_record,
        Error.none,
        Error.none,
    ]
    assert stored(connection, free) == [b"anything"]


def test_a_connection_appends_in_the_order_of_its_requests(
    broker: Broker, registry: RegistryClient, connection: raw_client.Connection
) -> None:
    """Invariant 3, also where the first request waits for the registry and the second for nothing."""
    topic = new_topic(broker, value_schema_validation="id")
    known = registry.register(f"{topic}-value", ORDER)
    assert produce(connection, topic, [framed(known)]).error_code == Error.none
    for number in range(10):
        new = registry.register(f"{topic}-value", {**ORDER, "doc": f"{number}"})
        big: list[Record | bytes] = [framed(new, b"%d" % number)] * 2000
        sent = [
            connection.send(raw_client.PRODUCE, 9, raw_client.produce_body(topic, batches.batch(each)))
            for each in (big, [framed(known, b"%d" % number)])
        ]
        answers = [connection.receive(each).responses[0].partition_responses[0] for each in sent]
        assert [each.error_code for each in answers] == [Error.none, Error.none]
        assert answers[0].base_offset + 2000 == answers[1].base_offset


def test_idempotent_and_transactional_batches(
    broker: Broker, registry: RegistryClient, connection: raw_client.Connection
) -> None:
    topic = new_topic(broker, value_schema_validation="id")
    number = registry.register(f"{topic}-value", ORDER)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": f"{topic}-transaction",
            "transaction.timeout.ms": 10_000,
        }
    )
    codes: list[Any] = []
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, framed(number, b"committed"))
    producer.commit_transaction(20)
    producer.begin_transaction()
    producer.produce(topic, framed(number, b"aborted"))
    producer.flush(20)
    producer.produce(topic, b"bad", on_delivery=lambda error, _: codes.append(error.code()))
    producer.flush(20)
    producer.abort_transaction(20)
    assert codes == [KafkaError.INVALID_RECORD]
    found = raw_client.fetch(connection, topic)
    assert framed(number, b"committed") in batches.values(found.records)
    assert b"bad" not in batches.values(found.records)


def test_the_setting_takes_effect_at_once_and_off_costs_nothing(
    broker: Broker, registry: RegistryClient, connection: raw_client.Connection
) -> None:
    topic = new_topic(broker)
    assert produce(connection, topic, [b"anything"]).error_code == Error.none
    set_topic(connection, topic, "confluent.value.schema.validation", "true")
    assert produce(connection, topic, [b"anything"]).error_code == Error.invalid_record
    set_topic(connection, topic, "value.schema.validation", "off")
    assert produce(connection, topic, [b"anything"]).error_code == Error.none


def test_a_damaged_batch_is_damaged_and_not_invalid(
    broker: Broker, registry: RegistryClient, connection: raw_client.Connection
) -> None:
    topic = new_topic(broker, value_schema_validation="id")
    number = registry.register(f"{topic}-value", ORDER)
    for records in ([framed(number)], [b"bad"]):
        assert produce(connection, topic, records, crc=1).error_code == Error.corrupt_message
        assert produce(connection, topic, records, payload=b"\xff" * 30, crc=1).error_code == Error.corrupt_message
    assert produce(connection, topic, [framed(number)], payload=b"\xff" * 30).error_code == Error.invalid_record


def test_a_batch_has_a_limited_number_of_schemas(broker: Broker, connection: raw_client.Connection) -> None:
    topic = new_topic(broker, value_schema_validation="payload")
    answer = produce(connection, topic, [framed(SIX_DIGITS + each) for each in range(200)])
    assert (answer.error_code, len(answer.record_errors)) == (Error.invalid_record, 200)
    answer = produce(connection, topic, [framed(SIX_DIGITS + each) for each in range(201)])
    assert answer.error_code == Error.invalid_record
    assert "201 different schemas" in answer.error_message


def test_refused_records_are_counted(broker: Broker, connection: raw_client.Connection) -> None:
    topic = new_topic(broker, value_schema_validation="id")
    assert produce(connection, topic, [b"a", b"b"]).error_code == Error.invalid_record
    assert scrape(broker.http_url).value("headrace_topic_schema_refusals_total", topic=topic) == 2


def test_the_subject_of_a_topic_may_be_an_alias(
    broker: Broker, registry: RegistryClient, connection: raw_client.Connection
) -> None:
    topic = new_topic(broker, value_schema_validation="id")
    number = registry.register("meant-value", ORDER)
    assert produce(connection, topic, [framed(number)]).error_code == Error.invalid_record
    registry.call("PUT", f"/config/{topic}-value", {"alias": "meant-value"})
    assert produce(connection, topic, [framed(number)]).error_code == Error.none


def test_requests_to_the_registry_and_lookups_are_counted(
    broker: Broker, registry: RegistryClient, connection: raw_client.Connection
) -> None:
    topic = new_topic(broker, value_schema_validation="id")
    number = registry.register(f"{topic}-value", ORDER)
    before = scrape(broker.http_url)
    for _ in range(5):
        assert produce(connection, topic, [framed(number)]).error_code == Error.none
    registry.call("GET", f"/schemas/ids/{number}")
    now = scrape(broker.http_url)
    assert now["headrace_schema_lookups_total"] == before["headrace_schema_lookups_total"] + 1
    labels = {"operation": "GET /schemas/ids/{id}", "status": "200"}
    assert (
        now.value("headrace_registry_requests_total", **labels)
        == before.value("headrace_registry_requests_total", 0.0, **labels) + 1
    )
