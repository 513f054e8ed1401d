"""Confluent's serializers for Avro, JSON Schema and Protobuf, in both wire formats; run by `run.py`.

    serializers.py write|read BOOTSTRAP REGISTRY_URL [PREFIX]

`write` publishes an order to the topic `confluent.FORMAT.WIRE` for each format and wire format. `read` prints the
orders of the topics `headrace.FORMAT.WIRE`, with the prefix of a link before them, as lines of JSON.
"""

import json
import sys
from functools import cache
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict

ORDER = {"id": 9007199254740993, "item": "tea", "lines": [{"price": 3}]}
AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "item", "type": "string"},
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "items": {"type": "record", "name": "Line", "fields": [{"name": "price", "type": "int"}]},
                },
            },
        ],
    }
)
LINE = {"type": "object", "properties": {"price": {"type": "integer"}}, "required": ["price"]}
JSON_SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "item": {"type": "string"},
            "lines": {"type": "array", "items": LINE},
        },
        "required": ["id"],
    }
)
WIRES = {"v0": prefix_schema_id_serializer, "v1": header_schema_id_serializer}


@cache
def order_class() -> Any:
    """The class of the second message of a file, so that its place is more than a zero byte."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Other").field.add(name="x", number=1, type=8, label=1)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=3, label=1, json_name="id")
    order.field.add(name="item", number=2, type=9, label=1, json_name="item")
    order.field.add(name="lines", number=3, type=11, label=3, type_name=".shop.Order.Line", json_name="lines")
    order.nested_type.add(name="Line").field.add(name="price", number=1, type=5, label=1, json_name="price")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def serializer(form: str, registry: SchemaRegistryClient, wire: str) -> Any:
    settings = {"schema.id.serializer": WIRES[wire]}
    if form == "avro":
        return AvroSerializer(registry, AVRO, conf=settings)
    if form == "json-schema":
        return JSONSerializer(JSON_SCHEMA, registry, conf=settings)
    return ProtobufSerializer(order_class(), registry, settings)


def deserializer(form: str, registry: SchemaRegistryClient) -> Any:
    if form == "avro":
        return AvroDeserializer(registry)
    if form == "json-schema":
        return JSONDeserializer(None, schema_registry_client=registry)
    return ProtobufDeserializer(order_class(), {}, registry)


def value_of_order(form: str) -> Any:
    if form != "protobuf":
        return ORDER
    made = order_class()(id=ORDER["id"], item=ORDER["item"])
    made.lines.add(price=3)
    return made


def write(bootstrap: str, registry: SchemaRegistryClient, _: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for form in ("avro", "json-schema", "protobuf"):
        for wire in WIRES:
            topic, headers = f"confluent.{form}.{wire}", []
            context = SerializationContext(topic, MessageField.VALUE, headers)
            data = serializer(form, registry, wire)(value_of_order(form), context)
            producer.produce(topic, data, headers=headers)
    if producer.flush(30):
        raise SystemExit("messages were not stored")


def read(bootstrap: str, registry: SchemaRegistryClient, prefix: str) -> None:
    topics = [f"{prefix}headrace.{form}.{wire}" for form in ("avro", "json-schema", "protobuf") for wire in WIRES]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "confluent", "auto.offset.reset": "earliest"})
    consumer.subscribe(topics)
    for _ in topics:
        message = consumer.poll(60)
        if message is None or message.error():
            raise SystemExit(f"no message: {message and message.error()}")
        form = message.topic().removeprefix(prefix).split(".")[1]
        context = SerializationContext(message.topic(), MessageField.VALUE, message.headers())
        found = deserializer(form, registry)(message.value(), context)
        if form == "protobuf":
            found = MessageToDict(found, preserving_proto_field_name=True)
            found["id"] = int(found["id"])
        print(json.dumps({"topic": message.topic(), "value": found}))
    consumer.close()


if __name__ == "__main__":
    command, bootstrap, url, *more = sys.argv[1:]
    {"write": write, "read": read}[command](bootstrap, SchemaRegistryClient({"url": url}), *(more or [""]))
