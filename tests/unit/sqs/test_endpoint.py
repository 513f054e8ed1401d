"""The endpoint: detecting the protocol, malformed requests, errors, waiting, and limits."""

import asyncio
import json
import logging

import msgspec
import pytest

from headrace.model import queue_wire as wire
from headrace.model.errors import PurgeInProgress, QueueUnavailable, StorageFailed, TooManyInFlight
from headrace.sqs.bodies import BodyBudget
from headrace.sqs.calls import ACTIONS
from headrace.sqs.endpoint import MOST_BODY_BYTES
from headrace.sqs.errors import SqsError

from .fake import Client, run

JSON = {"Host": "h:1", "Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "AmazonSQS.ListQueues"}
FORM = {"Host": "h:1", "Content-Type": "application/x-www-form-urlencoded"}


def test_there_are_23_actions() -> None:
    assert len(ACTIONS) == 23


# -- the query protocol


def test_a_life_by_forms() -> None:
    async def test(client: Client) -> None:
        made = await client.query(
            "CreateQueue",
            {
                "QueueName": "work",
                "Attribute.1.Name": "DelaySeconds",
                "Attribute.1.Value": "5",
                "Attribute.2.Name": "VisibilityTimeout",
                "Attribute.2.Value": "60",
                "Tag.1.Key": "team",
                "Tag.1.Value": "blue",
            },
        )
        url = made.xml.findtext("CreateQueueResult/QueueUrl")
        assert url == "http://queues.test:9324/000000000000/work"
        assert made.headers["content-type"] == "text/xml"
        assert made.xml.findtext("ResponseMetadata/RequestId") == made.headers["x-amzn-requestid"]
        sent = await client.query(
            "SendMessage",
            {
                "MessageBody": "<a> & \r\n é",
                "MessageAttribute.1.Name": "n",
                "MessageAttribute.1.Value.DataType": "Number",
                "MessageAttribute.1.Value.StringValue": "1",
                "MessageAttribute.2.Name": "b",
                "MessageAttribute.2.Value.DataType": "Binary",
                "MessageAttribute.2.Value.BinaryValue": "AAH/",
                "DelaySeconds": 0,
            },
            path="/000000000000/work",
        )
        assert sent.xml.findtext("SendMessageResult/MD5OfMessageAttributes")
        got = await client.query(
            "ReceiveMessage",
            {
                "QueueUrl": url,
                "MaxNumberOfMessages": "10",
                "AttributeName.1": "All",
                "MessageAttributeName.1": "n",
                "MessageAttributeName.2": "b",
            },
        )
        message = got.xml.find("ReceiveMessageResult/Message")
        assert message is not None
        assert message.findtext("Body") == "<a> & \r\n é"
        attributes = {each.findtext("Name"): each.findtext("Value") for each in message.findall("Attribute")}
        assert attributes["ApproximateReceiveCount"] == "1"
        values = {each.findtext("Name"): each.find("Value") for each in message.findall("MessageAttribute")}
        assert values["n"].findtext("StringValue") == "1"  # type: ignore[union-attr]
        assert values["b"].findtext("BinaryValue") == "AAH/"  # type: ignore[union-attr]
        deleted = await client.query(
            "DeleteMessageBatch",
            {
                "QueueUrl": url,
                "DeleteMessageBatchRequestEntry.1.Id": "a",
                "DeleteMessageBatchRequestEntry.1.ReceiptHandle": message.findtext("ReceiptHandle"),
                "DeleteMessageBatchRequestEntry.2.Id": "b",
                "DeleteMessageBatchRequestEntry.2.ReceiptHandle": "rubbish",
            },
        )
        result = deleted.xml.find("DeleteMessageBatchResult")
        assert result is not None
        assert result.findtext("DeleteMessageBatchResultEntry/Id") == "a"
        assert result.findtext("BatchResultErrorEntry/Code") == "ReceiptHandleIsInvalid"
        assert result.findtext("BatchResultErrorEntry/SenderFault") == "true"
        shown = await client.query("GetQueueAttributes", {"QueueUrl": url, "AttributeName.1": "DelaySeconds"})
        assert shown.xml.findtext("GetQueueAttributesResult/Attribute/Value") == "5"
        tags = await client.query("ListQueueTags", {"QueueUrl": url})
        assert tags.xml.findtext("ListQueueTagsResult/Tag/Key") == "team"
        listed = await client.query("ListQueues")
        assert listed.xml.findtext("ListQueuesResult/QueueUrl") == url
        purged = await client.query("PurgeQueue", {"QueueUrl": url})
        assert purged.xml.tag == "PurgeQueueResponse"
        assert purged.xml.find("PurgeQueueResult") is None

    run(test)


def test_a_url_will_do() -> None:
    async def test(client: Client) -> None:
        await client.queue()
        answer = await client.request(
            "GET", "/000000000000/work", {"Host": "h:1"}, query="Action=SendMessage&MessageBody=hello%20you"
        )
        assert answer.status == 200
        assert client.queues.by_name["work"].sent[0].body == b"hello you"
        answer = await client.request("GET", "/", {"Host": "h:1"}, query="Action=GetQueueUrl&QueueName=work")
        assert answer.xml.findtext("GetQueueUrlResult/QueueUrl") == "http://h:1/000000000000/work"

    run(test)


def test_text_that_xml_does_not_have_is_shown_as_such() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        await client.queues.send("work", [wire.OutgoingMessage(b"a\x01\xff\xc3\xbc", "id")])
        (got,) = (await client.json("ReceiveMessage", QueueUrl=url)).json["Messages"]
        assert got["Body"] == "a\x01\ufffdü"
        answer = await client.query("ReceiveMessage", {"QueueUrl": url})
        assert answer.xml.findtext("ReceiveMessageResult/Message/Body") == "a\ufffd\ufffdü"

    run(test)


@pytest.mark.parametrize(
    "form",
    [
        b"\xff\xfe=1",
        b"Action=SendMessage&MessageBody=%ff",
        b"Action=SendMessage&MessageBody=a&MessageAttribute.1.Value.DataType=String",
        b"Action=SendMessage&MessageBody=a&MessageBody.1=b",
        b"Action=ReceiveMessage&MaxNumberOfMessages=many",
        b"Action=SendMessage&" + b"&".join(b"a%d=1" % n for n in range(3000)),
        b"Action=SetQueueAttributes&Attribute.1=5",
        b"Action=SendMessage&" + b"a." * 50_000 + b"=1",
    ],
)
def test_malformed_forms(form: bytes) -> None:
    async def test(client: Client) -> None:
        await client.queue()
        answer = await client.request("POST", "/000000000000/work", FORM, form)
        assert answer.error[:2] == (400, "MalformedInput")
        assert not client.queues.by_name["work"].sent

    run(test)


# -- the JSON protocol


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"MaxResults": "3"}',
        b'{"QueueNamePrefix": [3]}',
        b"[" * 100_000,
    ],
)
def test_malformed_json(body: bytes) -> None:
    async def test(client: Client) -> None:
        answer = await client.request("POST", "/", JSON, body)
        assert answer.status == 400
        assert answer.json["__type"] == "com.amazon.coral.service#SerializationException"

    run(test)


def test_an_empty_body_is_an_empty_request_and_unknown_parameters_are_passed_over() -> None:
    async def test(client: Client) -> None:
        assert (await client.request("POST", "/", JSON, b"")).json == {}
        assert (await client.request("POST", "/", JSON, b'{"Nonsense": 1}')).json == {}

    run(test)


@pytest.mark.parametrize("target", ["AmazonSQS.Nonsense", "AmazonSQS.", "Other.ListQueues", "ListQueues"])
def test_unknown_targets(target: str) -> None:
    async def test(client: Client) -> None:
        answer = await client.request("POST", "/", {**JSON, "X-Amz-Target": target}, b"{}")
        assert answer.status == 400
        assert answer.json["__type"] == "com.amazon.coral.service#UnknownOperationException"

    run(test)


def test_errors_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        client.queues.failure = QueueUnavailable("loading")
        answer = await client.json("ReceiveMessage", QueueUrl=url)
        assert answer.error[:2] == (503, "ServiceUnavailable")
        assert answer.headers["x-amzn-query-error"] == "ServiceUnavailable;Receiver"
        client.queues.failure = TooManyInFlight("too many")
        assert (await client.json("ReceiveMessage", QueueUrl=url)).error[:2] == (403, "OverLimit")
        client.queues.failure = PurgeInProgress("wait")
        assert (await client.json("PurgeQueue", QueueUrl=url)).error == (
            403,
            "AWS.SimpleQueueService.PurgeQueueInProgress",
            "Only one PurgeQueue operation on work is allowed every 60 seconds.",
        )
        caplog.set_level(logging.ERROR, "headrace.sqs.http_request")
        client.queues.failure = StorageFailed("EIO")
        assert (await client.json("ReceiveMessage", QueueUrl=url)).error[:2] == (500, "InternalFailure")
        client.queues.find = None  # type: ignore[assignment]
        assert (await client.query("PurgeQueue", {"QueueUrl": url})).error[:2] == (500, "InternalFailure")
        lines = [record for record in caplog.records if record.name == "headrace.sqs.http_request"]
        assert [record.getMessage().partition(":")[0] for record in lines] == ["a request over HTTP has failed"] * 2

    run(test)


# -- waiting


def test_a_message_wakes_who_waits() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        waiting = asyncio.ensure_future(client.json("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20))
        await client.queues.somebody_waits.wait()
        await client.json("SendMessage", QueueUrl=url, MessageBody="now")
        assert (await waiting).json["Messages"][0]["Body"] == "now"

    run(test)


def test_a_client_that_goes_away_takes_no_message_with_it() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        waiting = asyncio.ensure_future(client.json("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20))
        await client.queues.somebody_waits.wait()
        client.disconnected.set()
        with pytest.raises(ConnectionError):
            await waiting
        await client.queues.somebody_gave_up.wait()

    run(test)


def test_who_waits_is_answered_when_the_broker_stops() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        waiting = asyncio.ensure_future(client.json("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20))
        await client.queues.somebody_waits.wait()
        await client.endpoint.stop()
        assert (await waiting).json == {}
        assert (await client.json("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20)).json == {}

    run(test)


# -- bounds


def test_a_body_that_is_too_long() -> None:
    async def test(client: Client) -> None:
        told = {**JSON, "Content-Length": str(MOST_BODY_BYTES + 1)}
        answer = await client.request("POST", "/", told)
        assert answer.error[:2] == (413, "RequestEntityTooLarge")
        assert answer.headers["connection"] == "close"
        pieces = [b" " * (MOST_BODY_BYTES // 2 + 1)] * 2
        assert (await client.request("POST", "/", JSON, pieces)).error[0] == 413
        assert client.bodies.used_bytes == 0
        assert (await client.request("POST", "/", JSON, [b"{", b"}"])).json == {}
        assert client.bodies.used_bytes == 0

    run(test)


def test_bodies_wait_for_each_other() -> None:
    async def test() -> None:
        bodies = BodyBudget(100)

        def pieces(*sizes: int):
            left = list(sizes)

            async def receive() -> dict[str, object]:
                size = left.pop(0)
                return {"type": "http.request", "body": b"x" * size, "more_body": bool(left)}

            return receive

        # One alone may have more than there is.
        assert len(await bodies.read(pieces(80, 80), None, 1000)) == 160
        second = asyncio.ensure_future(bodies.read(pieces(10), None, 1000))
        await asyncio.sleep(0)
        assert not second.done()
        bodies.free(160)
        assert len(await second) == 10
        bodies.free(10)
        # Two that hold all of it and want more do not wait for each other for ever.
        both = [asyncio.ensure_future(bodies.read(pieces(50, 50), None, 1000)) for _ in range(2)]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        bodies.free(100)
        await asyncio.wait(both)
        bodies.free(100)
        with pytest.raises(SqsError):
            await bodies.read(pieces(60, 60), None, 100)
        assert bodies.used_bytes == 0

    asyncio.run(asyncio.wait_for(test(), 60))


# -- the SDK's calls


async def call(client: Client, request: msgspec.Struct, status: int = 200) -> object:
    headers = {"Content-Type": wire.MSGPACK, "X-Amz-Target": wire.TARGET_PREFIX + type(request).__name__}
    answer = await client.request("POST", "/", headers, msgspec.msgpack.encode(request))
    assert (answer.status, answer.headers["content-type"]) == (status, wire.MSGPACK)
    return msgspec.msgpack.decode(answer.body, type=wire.ANSWERS[type(request)] if status == 200 else wire.Problem)


def test_calls_of_the_sdk() -> None:
    async def test(client: Client) -> None:
        made = await call(client, wire.CreateQueue("jobs", {"visibility.timeout.ms": "5"}))
        assert isinstance(made, wire.Description)
        assert (made.queue, made.settings["visibility_timeout_ms"]) == ("jobs", 5)
        message = wire.OutgoingMessage(b"\x00\xff", "id-1", priority=9, group="g", headers=(("h", None),))
        assert await call(client, wire.Send("jobs", [message])) == wire.AllSent([wire.Sent("id-1", 0)])
        got = await call(client, wire.Receive("jobs", 1000, wait_ms=0))
        assert isinstance(got, wire.AllReceived)
        assert (got.messages[0].body, got.messages[0].headers) == (b"\x00\xff", (("h", None),))
        assert await call(client, wire.Extend("jobs", [("0-1", 1), ("0-gone", 1)])) == wire.Outcomes(
            [None, wire.Problem("NotInFlight", "gone")]
        )
        assert await call(client, wire.GiveBack("jobs", [("0-1", None, "why")])) == wire.Outcomes([None])
        assert client.queues.asked[-1] == ("nack", [("0-1", None, "why")])
        peeked = await call(client, wire.Peek("jobs", wire.Filter(ids=["id-1"], limit=3), 5))
        assert isinstance(peeked, wire.AllPeeked)
        assert client.queues.asked[-1] == ("peek", wire.Filter(ids=["id-1"], limit=3), 5)
        assert await call(client, wire.Acknowledge("jobs", ["0-1"])) == wire.Outcomes([None])
        assert client.queues.asked[-1] == ("acknowledge", False)
        assert await call(client, wire.Count("jobs")) == wire.Counts(0, 2, 3)
        await call(client, wire.AlterQueue("jobs", {"visibility.timeout.ms": None}))
        described = await call(client, wire.DescribeQueue("jobs"))
        assert isinstance(described, wire.Description)
        assert described.settings["visibility_timeout_ms"] == 30_000
        assert described.counts == wire.Counts(0, 2, 3)
        listed = await call(client, wire.ListQueues(with_counts=True))
        assert isinstance(listed, wire.Descriptions)
        assert [each.counts for each in listed.queues] == [wire.Counts(0, 2, 3)]
        move = await call(client, wire.StartMove("jobs", wanted=wire.Filter(reason_contains="x")))
        assert isinstance(move, wire.Move)
        assert await call(client, wire.ListMoves("jobs")) == wire.Moves([move])
        assert isinstance(await call(client, wire.CancelMove(move.id)), wire.Move)
        await call(client, wire.Purge("jobs"))
        await call(client, wire.DeleteQueue("jobs"))
        assert await call(client, wire.DescribeQueue("jobs"), 400) == wire.Problem(
            "UnknownQueue", "there is no queue jobs"
        )

    run(test)


def test_calls_that_are_refused() -> None:
    async def test(client: Client) -> None:
        await call(client, wire.CreateQueue("jobs"))
        for request in (
            wire.Receive("jobs", 1001),
            wire.Receive("jobs", 0),
            wire.Receive("jobs", 1, wait_ms=60_001),
            wire.Acknowledge("jobs", []),
            wire.Acknowledge("jobs", [], [(5, 4, 1)]),
            wire.Acknowledge("jobs", [], [(-1, 4, 1)]),
            wire.Acknowledge("jobs", [], [(0, 1_000, 1)]),
            wire.Acknowledge("jobs", ["0-1"], [(0, 499, 1), (600, 1_099, 1)]),
            wire.Acknowledge("jobs", [], [(1 << 63, 1 << 63, 1)]),
        ):
            problem = await call(client, request, 400)
            assert isinstance(problem, wire.Problem)
            assert problem.error == "InvalidParameterValue"
        client.queues.failure = QueueUnavailable("loading")
        assert await call(client, wire.Receive("jobs", 1, 0), 503) == wire.Problem("QueueUnavailable", "loading")
        headers = {"Content-Type": wire.MSGPACK, "X-Amz-Target": "Headrace.Receive"}
        for body in (b"", b"\xc1", b"\x80", msgspec.msgpack.encode({"queue": 3})):
            answer = await client.request("POST", "/", headers, body)
            assert answer.status == 400
            assert msgspec.msgpack.decode(answer.body, type=wire.Problem).error == "MalformedInput"
        answer = await client.request("POST", "/", {**headers, "X-Amz-Target": "Headrace.Nonsense"}, b"")
        assert msgspec.msgpack.decode(answer.body, type=wire.Problem).error == "InvalidAction"

    run(test)


def test_messages_are_received_and_acknowledged_as_ranges() -> None:
    async def test(client: Client) -> None:
        await client.queue("jobs")
        found = await call(client, wire.Receive("jobs", 100, 0, as_batches=True))
        assert isinstance(found, wire.AllReceived)
        assert (found.batches, found.topic_id, found.ranges[0].last) == (b"batches", "topic", 19)
        assert client.queues.asked[-1] == ("batches", 100)
        assert await call(client, wire.Receive("jobs", 100, 0)) == wire.AllReceived([])
        refused = [(3, wire.Problem("NotInFlight", "again"))]
        done = await call(client, wire.Acknowledge("jobs", [], [(0, 19, 1)], "topic"))
        assert done == wire.Outcomes([], refused)
        assert client.queues.asked[-1] == ("ranges", [(0, 19, 1)])
        both = await call(client, wire.Acknowledge("jobs", ["x"], [(0, 19, 1)], "topic"))
        assert isinstance(both, wire.Outcomes)
        assert both.range_problems == refused
        assert [problem and problem.error for problem in both.problems] == ["InvalidReceipt"]
        assert await call(client, wire.Acknowledge("jobs", ["0-1"])) == wire.Outcomes([None])

    run(test)


def test_a_list_tells_of_the_others_while_a_queue_cannot_be_served() -> None:
    async def test(client: Client) -> None:
        await client.queue("jobs")
        await client.queue("stuck")
        count = client.queues.counts

        async def counts(name: str) -> wire.Counts:
            if name == "stuck":
                raise QueueUnavailable("stuck-0 is being loaded: try again")
            return await count(name)

        client.queues.counts = counts  # type: ignore[method-assign]
        found = await call(client, wire.ListQueues("", True))
        assert isinstance(found, wire.Descriptions)
        assert [(each.queue, each.counts) for each in found.queues] == [("jobs", wire.Counts(0, 2, 3)), ("stuck", None)]

    run(test)


def test_the_same_calls_as_json() -> None:
    async def test(client: Client) -> None:
        await client.queue("jobs")
        headers = {"Content-Type": "application/json; charset=utf-8", "X-Amz-Target": "Headrace.Send"}
        body = json.dumps({"queue": "jobs", "messages": [["AP8=", "id-1"]]}).encode()
        answer = await client.request("POST", "/", headers, body)
        assert answer.headers["content-type"] == "application/json"
        assert answer.json == {"sent": [["id-1", 0]]}
        assert client.queues.by_name["jobs"].sent[0].body == b"\x00\xff"

    run(test)
