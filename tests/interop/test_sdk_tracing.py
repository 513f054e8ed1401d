"""The SDK's spans and metrics with OpenTelemetry's SDK and a real broker."""

import asyncio
import uuid
from typing import cast

import pytest
from confluent_kafka import Consumer, Producer
from opentelemetry.trace import SpanKind, StatusCode

from headrace import Backoff, Client, DeliveryFailed, Outgoing, Reject
from headrace.aio import Client as AioClient
from headrace.testing.process import BrokerProcess
from tests.waiting import until

from .sqs_brokers import client_of
from .subject import Subject
from .tracing import Telemetry, links, span_id, telemetry, trace_id

__all__ = ["telemetry"]


@pytest.fixture
def name() -> str:
    return f"traced-{uuid.uuid4().hex[:8]}"


def test_publish_to_handler_is_one_trace(broker: Subject, topic: str, telemetry: Telemetry) -> None:
    with Client(broker.bootstrap, client_id="shop") as client:

        @client.handler(topic, group="billing")
        def bill(order):
            client.stop()
            return Outgoing(f"{topic}-out", b"bill")

        with telemetry.tracer.start_as_current_span("request") as request:
            stored = client.publish(topic, {"item": "tea"}, key="alice")
        client.run()
        sent, processed = telemetry.one(f"send {topic}"), telemetry.one(f"process {topic}")
        result = telemetry.one(f"send {topic}-out")

    assert {trace_id(each) for each in (sent, processed, result)} == {request.get_span_context().trace_id}
    assert sent.parent is not None
    assert sent.parent.span_id == request.get_span_context().span_id
    assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert processed.parent is not None
    assert processed.parent.span_id == span_id(sent)
    assert links(processed) == [span_id(sent)]
    assert result.parent is not None
    assert result.parent.span_id == span_id(processed)

    host, _, port = broker.bootstrap.rpartition(":")
    common = {
        "server.address": host,
        "server.port": int(port),
        "messaging.client.id": "shop",
        "messaging.system": "kafka",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(stored.partition),
        "messaging.kafka.message.key": "alice",
        "messaging.kafka.offset": stored.offset,
        "messaging.message.body.size": len(b'{"item":"tea"}'),
    }
    assert dict(sent.attributes or {}) == common | {
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
    }
    assert dict(processed.attributes or {}) == common | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "billing",
    }


def test_retries_and_dead_letters_keep_the_trace(broker: Subject, topic: str, telemetry: Telemetry) -> None:
    dead, attempts = f"{topic}.dead", []
    with Client(broker.bootstrap) as client:

        @client.handler(
            topic, group="g", retry=Backoff(attempts=2, initial_s=0.01), retry_mode="retry-topic", dead_letter=dead
        )
        def fail(message):
            attempts.append(message)
            raise ValueError("on purpose")

        @client.handler(dead, group="g")
        def bury(message):
            client.stop()

        client.publish(topic, b"x")
        client.run()
        sent = telemetry.one(f"send {topic}")
        first, retried = telemetry.one(f"process {topic}"), telemetry.one(f"process {topic}.g.retry")
        copy, buried = telemetry.one(f"send {dead}"), telemetry.one(f"process {dead}")

    assert len(attempts) == 2
    assert {trace_id(each) for each in (first, retried, copy, buried)} == {trace_id(sent)}
    # A copy has the context that the message was created with: it is linked, and no new one is made.
    assert links(copy) == links(retried) == links(buried) == [span_id(sent)]
    assert copy.kind is SpanKind.CLIENT
    assert copy.parent is not None
    assert copy.parent.span_id == span_id(retried)
    assert (first.attributes or {})["error.type"] == "ValueError"
    assert first.status.status_code is StatusCode.ERROR
    assert [event.name for event in first.events] == ["exception"]
    assert (retried.attributes or {})["headrace.message.attempt"] == 2


def test_exactly_once_results_are_in_the_trace(broker: Subject, topic: str, telemetry: Telemetry) -> None:
    with Client(broker.bootstrap) as client:

        @client.handler(topic, group="copy", delivery="exactly-once")
        def copy(message):
            client.stop()
            return Outgoing(f"{topic}-copy", message.payload)

        client.publish(topic, b"x")
        client.run()
        sent, processed = telemetry.one(f"send {topic}"), telemetry.one(f"process {topic}")
        result = telemetry.one(f"send {topic}-copy")
    assert trace_id(sent) == trace_id(result)
    assert result.parent is not None
    assert result.parent.span_id == span_id(processed)


def test_a_poll_is_linked_with_its_messages_and_a_block_is_a_span(
    broker: Subject, topic: str, telemetry: Telemetry
) -> None:
    with Client(broker.bootstrap) as client:
        for _ in range(3):
            client.publish_soon(topic, b"x")
        client.flush()
        with client.consume(topic, group="billing") as orders:
            while len(telemetry.spans) < 4:
                orders.take(1, 1.0)
            for order in orders:
                with order:
                    client.publish(f"{topic}-out", b"bill")
                break
    sent = telemetry.named(f"send {topic}", 3)
    polled = telemetry.one(f"poll {topic}")
    assert polled.kind is SpanKind.CLIENT
    assert set(links(polled)) <= {span_id(each) for each in sent}
    assert (polled.attributes or {})["messaging.batch.message_count"] == len(links(polled))
    assert (polled.attributes or {})["messaging.consumer.group.name"] == "billing"
    processed, result = telemetry.one(f"process {topic}"), telemetry.one(f"send {topic}-out")
    assert trace_id(processed) == trace_id(result)
    assert trace_id(processed) in {trace_id(each) for each in sent}


def test_queue_to_worker_to_dead_letters_and_back_is_one_trace(
    broker: Subject, name: str, telemetry: Telemetry
) -> None:
    with Client(broker.bootstrap) as client:
        emails = client.queue(name).create(max_receives=3, dead_letter=f"{name}-dead", backoff=0.01)
        seen: list[int] = []

        @emails.worker(concurrency=1)
        def work(message):
            seen.append(message.attempt)
            if len(seen) == 1:
                raise ConnectionError("try again")
            if len(seen) == 2:
                raise Reject("hopeless")
            client.stop()

        with telemetry.tracer.start_as_current_span("request") as request:
            message_id = emails.send(b"hello").id
        with client.running():
            until(lambda: client.queue(f"{name}-dead").counts().available == 1)
            client.queue(f"{name}-dead").redrive().wait(60)
            until(lambda: len(seen) == 3)
        processed = telemetry.named(f"process {name}", 3)
        sent, copy = telemetry.one(f"send {name}"), telemetry.one(f"send {name}-dead")

    everything = [sent, copy, *processed]
    assert {trace_id(each) for each in everything} == {request.get_span_context().trace_id}
    assert all(links(each) == [span_id(sent)] for each in processed)
    assert (
        dict(sent.attributes or {}).items()
        >= {
            "messaging.system": "headrace",
            "messaging.operation.name": "send",
            "messaging.destination.name": name,
            "messaging.message.id": message_id,
            "messaging.message.body.size": 5,
        }.items()
    )
    errors = [(each.attributes or {}).get("error.type") for each in processed]
    assert errors == ["ConnectionError", "headrace.client.errors.Reject", None]
    assert [(each.attributes or {})["headrace.message.attempt"] for each in processed[:2]] == [1, 2]
    assert (copy.attributes or {})["messaging.message.id"] == message_id


def test_a_batch_is_one_span_and_a_receive_links_it(broker: Subject, name: str, telemetry: Telemetry) -> None:
    with Client(broker.bootstrap) as client:
        emails = client.queue(name).create()
        emails.send_many([b"1", b"2", b"3"])
        found = emails.receive(max=3)
        for message in found:
            with message:
                pass
    batch, received = telemetry.one(f"send {name}"), telemetry.one(f"receive {name}")
    assert (batch.attributes or {})["messaging.batch.message_count"] == 3
    assert batch.kind is SpanKind.PRODUCER
    assert set(links(received)) == {span_id(batch)}
    assert len(links(received)) == len(found)
    assert trace_id(telemetry.named(f"process {name}", len(found))[0]) == trace_id(batch)


def test_context_of_other_clients(broker: Subject, name: str, telemetry: Telemetry) -> None:
    """Kafka clients see the headers, SQS clients the attributes; what they send is understood, and the trace header of
    AWS stays as it is."""
    theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    sqs = client_of(cast(BrokerProcess, broker))
    with Client(broker.bootstrap) as client:
        queue = client.queue(name).create()
        url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
        text = {"DataType": "String", "StringValue": theirs}
        aws = {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}
        sqs.send_message(
            QueueUrl=url,
            MessageBody="x",
            MessageAttributes={"traceparent": text},
            MessageSystemAttributes={"AWSTraceHeader": aws},
        )
        (message,) = queue.receive()
        with message:
            queue.send(b"y")
        received, processed = telemetry.one(f"receive {name}"), telemetry.one(f"process {name}")
        assert links(received) == [0xB7AD6B7169203331]
        assert trace_id(processed) == 0x0AF7651916CD43DD8448EB211C80319C

        (answer,) = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"], WaitTimeSeconds=20)["Messages"]
        sent = telemetry.one(f"send {name}")
        written = answer["MessageAttributes"]["traceparent"]["StringValue"]
        assert written == f"00-0af7651916cd43dd8448eb211c80319c-{span_id(sent):016x}-01"

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(f"{name}-topic", b"x", headers={"traceparent": theirs, "tracestate": "vendor=1"})
    producer.flush()
    with Client(broker.bootstrap) as client:
        (first,) = client.replay(f"{name}-topic")
        client.publish(f"{name}-topic", b"y", headers=first.headers)
    copied = telemetry.one(f"send {name}-topic")
    assert links(copied) == [0xB7AD6B7169203331]
    assert copied.links[0].context.trace_state.to_header() == "vendor=1"
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([f"{name}-topic"])
    try:
        got = [until(lambda: consumer.poll(1.0)).headers() for _ in range(2)]
    finally:
        consumer.close()
    assert got[0] == got[1] == [("traceparent", theirs.encode()), ("tracestate", b"vendor=1")]


def test_asyncio(broker: Subject, topic: str, name: str, telemetry: Telemetry) -> None:
    async def main() -> None:
        async with AioClient(broker.bootstrap) as client:
            queue = await client.queue(name).create()

            @client.handler(topic, group="g")
            async def forward(message):
                await asyncio.sleep(0)
                await queue.send(message.payload)

            @queue.worker()
            async def work(message):
                await client.publish(f"{topic}-out", b"z")
                client.stop()

            with telemetry.tracer.start_as_current_span("request"):
                await client.publish(topic, b"x")
            await client.run()
            await queue.send(b"again")
            for message in await queue.receive():
                async with message:
                    await client.publish(f"{topic}-out", b"z")

    asyncio.run(main())
    request, first = telemetry.one("request"), telemetry.named(f"send {name}", 2)[0]
    last, own = telemetry.named(f"send {topic}-out", 2)
    process = telemetry.named(f"process {name}", 2)
    assert trace_id(request) == trace_id(first) == trace_id(last)
    assert last.parent is not None
    assert last.parent.span_id == span_id(process[0])
    assert own.parent is not None
    assert own.parent.span_id == span_id(process[1])
    assert telemetry.one(f"receive {name}").kind is SpanKind.CLIENT


def test_failures_of_sending(broker: Subject, topic: str, telemetry: Telemetry) -> None:
    with Client(broker.bootstrap) as client, pytest.raises(DeliveryFailed):
        client.publish(topic, b"x" * 20_000_000)
    refused = telemetry.one(f"send {topic}")
    assert (refused.attributes or {})["error.type"] == "MSG_SIZE_TOO_LARGE"
    assert refused.status.status_code is StatusCode.ERROR
    (count,) = telemetry.points("messaging.client.sent.messages")
    assert count.attributes["error.type"] == "MSG_SIZE_TOO_LARGE"


def test_metrics_count_and_time_messages(broker: Subject, topic: str, name: str, telemetry: Telemetry) -> None:
    with Client(broker.bootstrap) as client:
        emails = client.queue(name).create()
        emails.send_many([b"1", b"2"])
        emails.send(b"3")

        @client.handler(topic, group="g")
        def handle(message):
            emails.receive(max=10)
            client.stop()

        client.publish(topic, b"x")
        client.run()

    def counted(metric: str) -> dict[tuple[str, str], float]:
        return {
            (
                point.attributes["messaging.operation.name"], point.attributes["messaging.destination.name"]
            ): point.value if hasattr(point, "value") else point.count
            for point in telemetry.points(metric)
        }  # fmt: skip

    assert counted("messaging.client.sent.messages") == {("send", name): 3, ("send", topic): 1}
    consumed = counted("messaging.client.consumed.messages")
    assert consumed["process", topic] == 1
    assert consumed["receive", name] >= 1
    assert counted("messaging.process.duration") == {("process", topic): 1}
    timed = counted("messaging.client.operation.duration")
    assert timed == {("send", name): 2, ("send", topic): 1, ("receive", name): 1}
