"""Records and columns: what it takes to turn one into the other, in one process. Prints one line of JSON.

codec.py decode --how columns     record batches in memory → Arrow, by headrace.records.columns
                --how wire        the same, fetched from a broker first
                --how aiokafka    record batches in memory → aiokafka's records → lists → Arrow
                --how confluent   confluent-kafka's consume from a broker → lists
codec.py encode --how columns     Arrow → record batches in memory
                --how aiokafka    Arrow → lists → aiokafka's batch builder
                --how confluent   lists → confluent-kafka's produce → a broker
codec.py avro   --how blocks      framed Avro values → Arrow, by headrace.pipelines.avro.values, 10,000 at a time
                --how fastavro    one by one by fastavro → dicts
                --how fastavro-arrow  and then → Arrow
codec.py protobuf --how blocks    framed Protobuf values → Arrow, by headrace.pipelines.protobuf.values
                --how google      one by one by google.protobuf → dicts, each field by its name
                --how google-arrow    and then → Arrow
                --how google-dict     by google.protobuf → MessageToDict, for any message
codec.py fill   puts the same records into a topic of a broker

Keys have 16 bytes, values are random bytes; batches are as full as librdkafka makes them.
"""

import argparse
import io
import json
import random
import sys
import time
from collections.abc import Callable, Iterable

import pyarrow as pa

from headrace.records.columns import decode, encode

NOW_MS = 1_700_000_000_000
MEMORY_BYTES = 48_000_000
BLOCK_ROWS = 10_000
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order_id", "type": "string"},
        {"name": "user", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "quantity", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "paid", "type": "boolean"},
    ],
}
SCHEMA_ID = 7


def rows(message_bytes: int) -> pa.RecordBatch:
    made = random.Random(1)
    count = MEMORY_BYTES // (message_bytes + 30)
    keys = [made.randbytes(16) for _ in range(count)]
    values = [made.randbytes(message_bytes) for _ in range(count)]
    return pa.RecordBatch.from_pydict({"key": pa.array(keys), "value": pa.array(values)})


def repeated(step: Callable[[], int], args: argparse.Namespace) -> dict[str, float]:
    """Whole passes, each of which says how many messages it was, for as long as asked."""
    until = time.perf_counter() + args.warmup
    while time.perf_counter() < until:
        step()
    messages = 0
    begin, cpu = time.perf_counter(), time.process_time()
    while (elapsed := time.perf_counter() - begin) < args.seconds:
        messages += step()
    return {"messages": messages, "seconds": elapsed, "cpu_s": time.process_time() - cpu}


# Decoding


def decode_columns(args: argparse.Namespace) -> dict[str, float]:
    data = b"".join(encode(rows(args.message_bytes), timestamp_ms=NOW_MS))
    return repeated(lambda: _rows_in(decode(data, topic="bench", partition=0)), args)


def decode_wire(args: argparse.Namespace) -> dict[str, float]:
    from headrace.wire import Cluster

    with Cluster(f"127.0.0.1:{args.port}") as cluster:

        def whole_topic() -> int:
            pieces = cluster.follow(args.topic, 0, 0, args.messages)
            return sum(_rows_in(decode(piece.records, topic=args.topic, partition=0)) for piece in pieces)

        return repeated(whole_topic, args)


def decode_aiokafka(args: argparse.Namespace) -> dict[str, float]:
    from aiokafka.record import MemoryRecords

    data = b"".join(encode(rows(args.message_bytes), timestamp_ms=NOW_MS))
    names = ["key", "value", "offset", "timestamp", "timestampType"]
    kinds = [pa.binary(), pa.binary(), pa.int64(), pa.timestamp("ms", tz="UTC"), pa.int32()]

    def whole() -> int:
        records = MemoryRecords(data)
        count = 0
        while records.has_next():
            batch = records.next_batch()
            batch.validate_crc()
            lists: tuple[list[object], ...] = ([], [], [], [], [])
            keys, values, offsets, times, types = lists
            for record in batch:
                keys.append(record.key)
                values.append(record.value)
                offsets.append(record.offset)
                times.append(record.timestamp)
                types.append(record.timestamp_type)
            arrays = [pa.array(each, kind) for each, kind in zip(lists, kinds, strict=True)]
            arrays += [pa.repeat("bench", len(keys)), pa.repeat(pa.scalar(0, pa.int32()), len(keys))]
            count += pa.RecordBatch.from_arrays(arrays, names=[*names, "topic", "partition"]).num_rows
        return count

    return repeated(whole, args)


def decode_confluent(args: argparse.Namespace) -> dict[str, float]:
    """One pass over the topic, from the first message that comes to the last."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{args.port}",
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "fetch.queue.backoff.ms": 10,
        }
    )
    consumer.assign([TopicPartition(args.topic, 0, OFFSET_BEGINNING)])
    count = first = 0
    begin = cpu = 0.0
    deadline = time.monotonic() + 120
    while count < args.messages and time.monotonic() < deadline:
        found = consumer.consume(BLOCK_ROWS, timeout=1.0)
        _lists(found)
        count += len(found)
        if not begin and found:
            begin, cpu, first = time.perf_counter(), time.process_time(), count
    elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu
    consumer.close()
    if count < args.messages:
        raise TimeoutError(f"{count} of {args.messages} messages came")
    return {"messages": count - first, "seconds": elapsed, "cpu_s": cpu}


def _lists(messages: list[object]) -> tuple[list[object], ...]:
    lists: tuple[list[object], ...] = ([], [], [], [])
    keys, values, offsets, times = lists
    for message in messages:
        keys.append(message.key())
        values.append(message.value())
        offsets.append(message.offset())
        times.append(message.timestamp())
    return lists


def _rows_in(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


# Encoding


def encode_columns(args: argparse.Namespace) -> dict[str, float]:
    made = rows(args.message_bytes)

    def whole() -> int:
        encode(made, timestamp_ms=NOW_MS)
        return int(made.num_rows)

    return repeated(whole, args)


def encode_aiokafka(args: argparse.Namespace) -> dict[str, float]:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    made = rows(args.message_bytes)

    def builder() -> DefaultRecordBatchBuilder:
        return DefaultRecordBatchBuilder(
            magic=2, compression_type=0, is_transactional=False, producer_id=-1, producer_epoch=-1, base_sequence=-1,
            batch_size=1_000_000,
        )  # fmt: skip

    def whole() -> int:
        batches = []
        batch, count = builder(), 0
        pairs = zip(made.column("key").to_pylist(), made.column("value").to_pylist(), strict=True)
        for key, value in pairs:
            if batch.append(count, NOW_MS, key, value, []) is None:
                batches.append(bytes(batch.build()))
                batch, count = builder(), 0
                batch.append(count, NOW_MS, key, value, [])
            count += 1
        batches.append(bytes(batch.build()))
        return int(made.num_rows)

    return repeated(whole, args)


def encode_confluent(args: argparse.Namespace) -> dict[str, float]:
    from confluent_kafka import Producer

    made = rows(args.message_bytes)
    producer = Producer(
        {"bootstrap.servers": f"127.0.0.1:{args.port}", "acks": "all", "queue.buffering.max.messages": 1_000_000}
    )

    def whole() -> int:
        pairs = zip(made.column("key").to_pylist(), made.column("value").to_pylist(), strict=True)
        for key, value in pairs:
            while True:
                try:
                    producer.produce(args.topic, value, key, partition=0)
                    break
                except BufferError:
                    producer.poll(0.01)
        if left := producer.flush(60):
            raise TimeoutError(f"{left} messages were not answered")
        return int(made.num_rows)

    return repeated(whole, args)


# Avro


def an_order(made: random.Random, number: int) -> dict[str, object]:
    return {
        "order_id": f"order-{number:08d}",
        "user": f"user{made.randrange(1000)}",
        "amount": made.random() * 100,
        "quantity": made.randrange(100),
        "at": NOW_MS * 1000 + number,
        "note": None if number % 3 else "as soon as possible",
        "paid": number % 2 == 0,
    }


def orders(count: int = 100_000) -> pa.Array:
    import fastavro

    made = random.Random(1)
    schema = fastavro.parse_schema(ORDER)
    values = []
    for number in range(count):
        out = io.BytesIO(b"\x00" + SCHEMA_ID.to_bytes(4, "big"))
        out.seek(5)
        fastavro.schemaless_writer(out, schema, an_order(made, number))
        values.append(out.getvalue())
    return pa.array(values)


def avro_values() -> "object":
    from headrace.pipelines.avro.values import AvroValues
    from headrace.pipelines.values.schemas import WriterSchema

    class One:
        def by_id(self, schema_id: int) -> WriterSchema | None:
            return WriterSchema(json.dumps(ORDER)) if schema_id == SCHEMA_ID else None

        def require(self, ids: Iterable[int]) -> None: ...

    return AvroValues(json.dumps(ORDER), writers=One())


def avro_blocks(args: argparse.Namespace) -> dict[str, float]:
    column, values = orders(), avro_values()

    def whole() -> int:
        for start in range(0, len(column), BLOCK_ROWS):
            values.decode(column.slice(start, BLOCK_ROWS))
        return len(column)

    return repeated(whole, args)


def avro_fastavro(args: argparse.Namespace, *, to_arrow: bool = False) -> dict[str, float]:
    import fastavro

    column, kind = orders(), avro_values().arrow
    schema = fastavro.parse_schema(ORDER)

    def whole() -> int:
        for start in range(0, len(column), BLOCK_ROWS):
            found = []
            for value in column.slice(start, BLOCK_ROWS).to_pylist():
                reader = io.BytesIO(value)
                reader.seek(5)
                found.append(fastavro.schemaless_reader(reader, schema))
            if to_arrow:
                pa.array(found, kind)
        return len(column)

    return repeated(whole, args)


# Protobuf

PROTO_ORDER = """
syntax = "proto3";
message Order {
  string order_id = 1; string user = 2; double amount = 3; int32 quantity = 4; int64 at = 5; optional string note = 6;
  bool paid = 7;
}
"""


def proto_codec() -> "object":
    from headrace.pipelines.protobuf.schema import parse_protobuf
    from headrace.schemas.payload.protobuf_codec import ProtobufCodec

    return ProtobufCodec(parse_protobuf(PROTO_ORDER))


def proto_orders(count: int = 100_000) -> pa.Array:
    from headrace.schemas.payload.frames import FIRST_MESSAGE, prefix

    made, codec, before = random.Random(1), proto_codec(), prefix(SCHEMA_ID, FIRST_MESSAGE)
    given = ({k: v for k, v in an_order(made, number).items() if v is not None} for number in range(count))
    return pa.array([before + codec.encode(order) for order in given])


def proto_values() -> "object":
    from headrace.pipelines.protobuf.values import ProtobufValues
    from headrace.pipelines.values.pinned import PinnedSchemas
    from headrace.pipelines.values.schemas import WriterSchema

    known = PinnedSchemas("orders", [(SCHEMA_ID, WriterSchema(PROTO_ORDER, kind="PROTOBUF"))])
    return ProtobufValues(PROTO_ORDER, writers=known)


def proto_blocks(args: argparse.Namespace) -> dict[str, float]:
    column, values = proto_orders(), proto_values()

    def whole() -> int:
        for start in range(0, len(column), BLOCK_ROWS):
            values.decode(column.slice(start, BLOCK_ROWS))
        return len(column)

    return repeated(whole, args)


def proto_google(args: argparse.Namespace, *, how: str = "") -> dict[str, float]:
    from google.protobuf.json_format import MessageToDict

    column, kind = proto_orders(), proto_values().arrow
    parse = type(proto_codec().message(b"")).FromString

    def fields(made: "object") -> dict[str, object]:
        return {
            "order_id": made.order_id, "user": made.user, "amount": made.amount, "quantity": made.quantity,
            "at": made.at, "note": made.note if made.HasField("note") else None, "paid": made.paid,
        }  # fmt: skip

    def as_dict(made: "object") -> dict[str, object]:
        return MessageToDict(made, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)

    convert = as_dict if how == "dict" else fields

    def whole() -> int:
        for start in range(0, len(column), BLOCK_ROWS):
            found = [convert(parse(value[6:])) for value in column.slice(start, BLOCK_ROWS).to_pylist()]
            if how == "arrow":
                pa.array(found, kind)
        return len(column)

    return repeated(whole, args)


def fill(args: argparse.Namespace) -> dict[str, float]:
    from headrace.wire import Cluster

    batches = encode(rows(args.message_bytes), timestamp_ms=NOW_MS)
    with Cluster(f"127.0.0.1:{args.port}") as cluster:
        for _ in range(args.times):
            for batch in batches:
                cluster.produce({(args.topic, 0): batch})
    return {"messages": rows(args.message_bytes).num_rows * args.times}


WAYS: dict[tuple[str, str], Callable[[argparse.Namespace], dict[str, float]]] = {
    ("decode", "columns"): decode_columns,
    ("decode", "wire"): decode_wire,
    ("decode", "aiokafka"): decode_aiokafka,
    ("decode", "confluent"): decode_confluent,
    ("encode", "columns"): encode_columns,
    ("encode", "aiokafka"): encode_aiokafka,
    ("encode", "confluent"): encode_confluent,
    ("avro", "blocks"): avro_blocks,
    ("avro", "fastavro"): avro_fastavro,
    ("avro", "fastavro-arrow"): lambda args: avro_fastavro(args, to_arrow=True),
    ("protobuf", "blocks"): proto_blocks,
    ("protobuf", "google"): proto_google,
    ("protobuf", "google-arrow"): lambda args: proto_google(args, how="arrow"),
    ("protobuf", "google-dict"): lambda args: proto_google(args, how="dict"),
    ("fill", ""): fill,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=sorted({what for what, _ in WAYS}))
    parser.add_argument("--how", default="")
    parser.add_argument("--message-bytes", type=int, default=100)
    parser.add_argument("--port", type=int, default=9092)
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--messages", type=int, default=0, help="how many the topic has")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--warmup", type=float, default=0.5)
    args = parser.parse_args()
    if (args.what, args.how) not in WAYS:
        parser.error(f"{args.what} is not done by {args.how!r}")
    print(json.dumps(WAYS[args.what, args.how](args)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
