"""What confluent-kafka-python's serializers write passes, and what was written for another topic does not.

Run by `validation.py` in an environment of its own, with the addresses of the broker and of its registry. Prints a line
of JSON for each check: what is checked, and what failed or null.
"""

import json
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
    record_subject_name_strategy,
    topic_record_subject_name_strategy,
    topic_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass

BOOTSTRAP, REGISTRY = sys.argv[1:3]
WAIT_S = 30
AVRO = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "note", "type": "string"}]}
JSON = {"title": "Order", "type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]}


def message_class() -> Any:
    """A message of Protobuf, as protoc makes it from a file."""
    file = FileDescriptorProto(name="order.proto", package="office", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(
        name="note", number=1, type=FieldDescriptorProto.TYPE_STRING, label=FieldDescriptorProto.LABEL_OPTIONAL
    )
    Default().Add(file)
    return GetMessageClass(Default().FindMessageTypeByName("office.Order"))


ORDER = message_class()
STRATEGIES: dict[str, Any] = {
    "TopicNameStrategy": topic_subject_name_strategy,
    "RecordNameStrategy": record_subject_name_strategy,
    "TopicRecordNameStrategy": topic_record_subject_name_strategy,
}
FRAMES: dict[str, Any] = {
    "the id in the value": prefix_schema_id_serializer,
    "the GUID in a header": header_schema_id_serializer,
}

client = SchemaRegistryClient({"url": REGISTRY})
reader = SchemaRegistryClient({"url": REGISTRY})
"""Another client, as consumers have: one that has registered a schema uses what it was answered then."""
admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
producer = Producer({"bootstrap.servers": BOOTSTRAP, "linger.ms": 0})
numbers = count()

KINDS: dict[str, tuple[Callable[[dict[str, Any]], Any], Callable[[], Any], Any]] = {
    "Avro": (
        lambda conf: AvroSerializer(client, json.dumps(AVRO), conf=conf),
        lambda: AvroDeserializer(reader),
        {"note": "hello"},
    ),
    "JSON Schema": (
        lambda conf: JSONSerializer(json.dumps(JSON), client, conf=conf),
        lambda: JSONDeserializer(json.dumps(JSON), schema_registry_client=reader),
        {"note": "hello"},
    ),
    "Protobuf": (
        lambda conf: ProtobufSerializer(ORDER, client, conf={"use.deprecated.format": False, **conf}),
        lambda: ProtobufDeserializer(ORDER, {"use.deprecated.format": False}, reader),
        ORDER(note="hello"),
    ),
}


def new_topic(strategy: str) -> str:
    name = f"orders-{next(numbers)}"
    settings = {"value.schema.validation": "payload", "value.subject.name.strategy": strategy}
    for future in admin.create_topics([NewTopic(name, 1, 1, config=settings)]).values():
        future.result(WAIT_S)
    return name


def send(topic: str, value: bytes | None, headers: Any) -> int:
    """Produce, and return the code of the error, or 0."""
    codes: list[int] = []
    producer.produce(
        topic, value, headers=headers, on_delivery=lambda error, _: codes.append(error.code() if error else 0)
    )
    assert producer.flush(WAIT_S) == 0, "not delivered"
    return codes[0]


def round_trip(kind: str, strategy: str, frame: str) -> None:
    make_serializer, make_deserializer, value = KINDS[kind]
    topic = new_topic(strategy)
    context = SerializationContext(topic, MessageField.VALUE, [])
    serializer = make_serializer({"subject.name.strategy": STRATEGIES[strategy], "schema.id.serializer": FRAMES[frame]})
    data = serializer(value, context)
    code = send(topic, data, context.headers)
    assert code == 0, KafkaError(code)
    assert send(topic, b"not framed", None) == KafkaError.INVALID_RECORD
    assert send(topic, data + b"\xff\xff", context.headers) == KafkaError.INVALID_RECORD
    if strategy != "RecordNameStrategy":
        assert send(new_topic(strategy), data, context.headers) == KafkaError.INVALID_RECORD
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(WAIT_S)
    consumer.close()
    assert message is not None, "nothing was consumed"
    assert message.error() is None, message.error()
    found = make_deserializer()(
        message.value(), SerializationContext(topic, MessageField.VALUE, message.headers() or [])
    )
    assert found == value, found


for kind in KINDS:
    for strategy in STRATEGIES:
        for frame in FRAMES:
            failure = None
            try:
                round_trip(kind, strategy, frame)
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
            print(json.dumps([f"{kind}, {strategy}, {frame}", failure]), flush=True)
