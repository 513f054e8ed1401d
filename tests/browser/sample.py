"""Data that every page has something to show of: topics, groups that are behind, queues with dead letters."""

import json
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import boto3
import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.model.pipeline_report import GraphNode, PipelineGraph, PipelineReport
from headrace.schemas.payload.frames import prefix
from headrace.testing import Broker
from headrace.testing.process import BrokerProcess
from tests.waiting import until

TOPICS = {"orders": 3, "payments": 2, "page-views": 4, "shipments": 1, "receipts": 1}
SCRIPT = "<script>alert('payload')</script><img src=x onerror=\"alert('image')\">"
ORDERS = 240
DEAD = 6


@dataclass(frozen=True, slots=True)
class SampleQueues:
    sqs: Any
    jobs: str
    dead: str


def order(number: int) -> dict[str, Any]:
    return {
        "order": 1000 + number,
        "customer": f"customer-{number % 17}",
        "status": ("paid", "open", "shipped")[number % 3],
        "total": round(5 + number * 7.35 % 400, 2),
        "items": [{"sku": f"S-{100 + number % 50}", "count": 1 + number % 4}],
    }


@contextmanager
def producing(broker: BrokerProcess) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    try:
        yield producer
    finally:
        assert producer.flush(60) == 0


def create_topics(broker: BrokerProcess | Broker, topics: dict[str, int]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(name, count, 1) for name, count in topics.items()]).values():
        made.result(60)


def produce_orders(broker: BrokerProcess, count: int, topic: str = "orders", first: int = 0) -> None:
    with producing(broker) as producer:
        for number in range(first, first + count):
            made = order(number)
            headers = [("content-type", b"application/json"), ("trace", f"{number:04x}".encode())]
            producer.produce(topic, json.dumps(made), key=made["customer"], headers=headers)


def commit(broker: BrokerProcess, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """Commit offsets of a group without members."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[TopicPartition(*each, at) for each, at in offsets.items()], asynchronous=False)
    finally:
        consumer.close()


def create_queues(broker: BrokerProcess, prefix: str = "jobs", dead_letters: int = DEAD) -> SampleQueues:
    """A queue with messages that are visible, delayed and dead-lettered."""
    sqs = boto3.client(
        "sqs",
        endpoint_url=broker.http_url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )
    dead = sqs.create_queue(QueueName=f"{prefix}-dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "1"})
    jobs = sqs.create_queue(QueueName=prefix, Attributes={"RedrivePolicy": policy})["QueueUrl"]
    for number in range(dead_letters):
        sqs.send_message(QueueUrl=jobs, MessageBody=json.dumps({"job": "resize", "image": f"image-{number}.png"}))
    received = 0
    while received < dead_letters:
        for message in sqs.receive_message(QueueUrl=jobs, MaxNumberOfMessages=10).get("Messages", []):
            received += 1
            sqs.change_message_visibility(QueueUrl=jobs, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)

    def count_dead() -> bool:
        # A message is moved by the receive after its last one.
        sqs.receive_message(QueueUrl=jobs, MaxNumberOfMessages=10)
        names = ["ApproximateNumberOfMessages"]
        found = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=names)["Attributes"]
        return int(found["ApproximateNumberOfMessages"]) == dead_letters

    until(count_dead, "the dead letters")
    for number in range(3):
        sqs.send_message(QueueUrl=jobs, MessageBody=json.dumps({"job": "report", "day": number}))
    sqs.send_message(QueueUrl=jobs, MessageBody=json.dumps({"job": "bill", "month": 11}), DelaySeconds=900)
    return SampleQueues(sqs, jobs, dead)


def report_pipeline(broker: BrokerProcess, name: str = "enrich-orders") -> None:
    """What a pipeline sends to a broker while it runs."""
    nodes = [
        GraphNode(id="orders", kind="source", name="orders", type="topic", detail="orders"),
        GraphNode(id="customers", kind="source", name="customers", type="table", detail="warehouse/customers"),
        GraphNode(id="valid", kind="step", name="valid orders", type="sql"),
        GraphNode(id="joined", kind="step", name="with customers", type="sql"),
        GraphNode(id="hourly", kind="step", name="hourly revenue", type="sql"),
        GraphNode(id="out", kind="sink", name="shipments", type="topic", detail="shipments"),
        GraphNode(id="table", kind="sink", name="revenue", type="table", detail="warehouse/revenue"),
        GraphNode(id="dead", kind="dead-letters", name="orders.dlq", type="topic", detail="orders.dlq"),
    ]
    edges = ["orders valid", "valid joined", "customers joined", "joined out", "joined hourly", "hourly table"]
    report = PipelineReport(
        instance="sample",
        state="running",
        is_supervised=True,
        host="worker-1",
        pid=4711,
        version="0.2.0",
        started_ms=int(time.time() * 1000) - 7_200_000,
        rows_per_s=842.5,
        batch_ms=412.0,
        lag=180,
        batches=304,
        rows_in=1_204_000,
        rows_out=1_203_988,
        dead_letters=12,
        state_rows=5200,
        state_bytes=3_400_000,
        source_topics=["orders"],
        dead_letter_topics=["orders.dlq"],
        graph=PipelineGraph(nodes, [*((a, b) for a, b in map(str.split, edges)), ("valid", "dead")]),
        log=[f"batch {290 + number}: {800 + number} rows in {400 + number} ms" for number in range(12)],
    )
    post(broker, f"/api/v1/pipelines/{name}/report", report)


def post(broker: BrokerProcess | Broker, path: str, body: Any) -> Any:
    """A request that changes something; its answer."""
    call = urllib.request.Request(
        broker.http_url + path, msgspec.json.encode(body), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(call, timeout=60) as answer:
        return json.loads(answer.read())


def get(broker: BrokerProcess | Broker, path: str) -> Any:
    with urllib.request.urlopen(broker.http_url + path, timeout=60) as answer:
        return json.loads(answer.read())


SHIPMENT = [
    {"name": "order", "type": "long"},
    {"name": "carrier", "type": "string", "doc": "Who brings it."},
    {"name": "weight", "type": "int", "default": 0, "doc": "In grams."},
]
SHIPMENT_2 = [
    *SHIPMENT[:2],
    {"name": "weight", "type": "long", "default": 0, "doc": "In grams."},
    {"name": "address", "type": ["null", "com.shop.Address"], "default": None},
]
ADDRESS = [{"name": "street", "type": "string"}, {"name": "city", "type": "string"}]
RECEIPT = """syntax = "proto3";
package com.shop;

message Receipt {
  string order = 1;
  int64 cents = 2;
}
"""


def avro_record(name: str, fields: list[Any]) -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "com.shop", "fields": fields})


def register(broker: BrokerProcess | Broker, subject: str, schema: str, **more: Any) -> int:
    """Register a schema; its id."""
    return int(post(broker, f"/api/v1/subjects/{subject}/versions", {"schema": schema, **more})["id"])


def register_schemas(broker: BrokerProcess | Broker, topic: str = "shipments") -> None:
    """A subject with two versions, of which the second refers to another subject, and schemas of the other types."""
    register(broker, f"{topic}-value", avro_record("Shipment", SHIPMENT))
    register(broker, f"{topic}-address", avro_record("Address", ADDRESS))
    reference = {"name": "com.shop.Address", "subject": f"{topic}-address", "version": 1}
    register(broker, f"{topic}-value", avro_record("Shipment", SHIPMENT_2), references=[reference])


def fill(broker: BrokerProcess) -> SampleQueues:
    create_topics(broker, TOPICS)
    produce_orders(broker, ORDERS)
    with producing(broker) as producer:
        producer.produce("payments", json.dumps({"note": SCRIPT}), key=SCRIPT, headers=[("x", SCRIPT.encode())])
        for number in range(60):
            producer.produce("page-views", f"GET /products/{number}", partition=number % 4)
    commit(broker, "billing", {("orders", 0): 10, ("orders", 1): 12, ("orders", 2): 0})
    commit(broker, "analytics", {("page-views", each): 15 for each in range(4)})
    report_pipeline(broker)
    register_schemas(broker)
    receipt = register(broker, "receipts-value", RECEIPT, schema_type="PROTOBUF")
    with producing(broker) as producer:
        # Field 1 is text of four bytes, field 2 the number 1250; the byte before says that it is the first message.
        producer.produce("receipts", prefix(receipt, (0,)) + b"\x0a\x041007\x10\xe2\x09", key="1007")
    register(broker, "orders-key", json.dumps({"type": "string"}), schema_type="JSON")
    return create_queues(broker)
