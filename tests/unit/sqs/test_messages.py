"""Sending, receiving and deleting by the JSON protocol: what goes in comes out, within AWS's limits."""

import hashlib
import struct
from typing import Any
from uuid import RFC_4122, UUID

import pytest

from headrace.model.unique_ids import new_id
from headrace.sqs import contents
from headrace.sqs.contents import MessageAttributeValue

from .fake import NOW_MS, Client, run

TEXT = {"DataType": "String", "StringValue": "v"}


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def test_a_message_goes_in_and_comes_out() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        sent = (await client.json("SendMessage", QueueUrl=url, MessageBody="grüß dich")).json
        assert sent == {"MessageId": sent["MessageId"], "MD5OfMessageBody": md5("grüß dich")}
        (got,) = (await client.json("ReceiveMessage", QueueUrl=url)).json["Messages"]
        assert got == {
            "MessageId": sent["MessageId"],
            "ReceiptHandle": "0-1",
            "Body": "grüß dich",
            "MD5OfBody": md5("grüß dich"),
        }
        done = await client.json("DeleteMessage", QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
        assert (done.status, done.body) == (200, b"{}")
        # Absent, not empty.
        assert (await client.json("ReceiveMessage", QueueUrl=url)).json == {}

    run(test)


def test_attributes_come_back_if_asked_for() -> None:
    attributes = {
        "city": TEXT,
        "count": {"DataType": "Number.int", "StringValue": "-1.5e3"},
        "photo": {"DataType": "Binary", "BinaryValue": "AAH/"},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}

    async def test(client: Client) -> None:
        url = await client.queue()
        sent = (
            await client.json(
                "SendMessage",
                QueueUrl=url,
                MessageBody="b",
                MessageAttributes=attributes,
                MessageSystemAttributes=trace,
                MessageGroupId="tenant-1",
            )
        ).json
        names = {"MessageAttributeNames": ["All"], "MessageSystemAttributeNames": ["All"]}
        (got,) = (await client.json("ReceiveMessage", QueueUrl=url, **names)).json["Messages"]
        assert got["MessageAttributes"] == attributes
        assert got["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
        assert "MD5OfMessageSystemAttributes" in sent
        assert got["Attributes"] == {
            "SenderId": "000000000000",
            "SentTimestamp": str(NOW_MS),
            "ApproximateReceiveCount": "1",
            "ApproximateFirstReceiveTimestamp": str(NOW_MS + 1),
            "MessageGroupId": "tenant-1",
            "AWSTraceHeader": "Root=1",
        }
        names = {"MessageAttributeNames": ["c.*", "none"], "AttributeNames": ["SentTimestamp"]}
        (got,) = (await client.json("ReceiveMessage", QueueUrl=url, **names)).json["Messages"]
        assert set(got["MessageAttributes"]) == {"city", "count"}
        assert got["Attributes"] == {"SentTimestamp": str(NOW_MS)}
        assert got["MD5OfMessageAttributes"] != sent["MD5OfMessageAttributes"]
        (got,) = (await client.json("ReceiveMessage", QueueUrl=url, MessageAttributeNames=["none"])).json["Messages"]
        assert "MessageAttributes" not in got
        assert "MD5OfMessageAttributes" not in got

    run(test)


def test_the_sum_of_attributes_is_made_as_aws_says() -> None:
    def part(data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + data

    expected = hashlib.md5(
        part(b"a")
        + part(b"String")
        + b"\x01"
        + part("ü".encode())
        + part(b"b")
        + part(b"Binary")
        + b"\x02"
        + part(b"\0"),
        usedforsecurity=False,
    ).hexdigest()
    assert expected == contents.md5_of_attributes(
        {
            "b": MessageAttributeValue(BinaryValue=b"\0", DataType="Binary"),
            "a": MessageAttributeValue(StringValue="ü", DataType="String"),
        }
    )


def test_headers_of_kafka_clients_are_attributes() -> None:
    attributes, system = contents.from_headers(
        (
            ("trace", b"abc"),
            ("raw", b"\xff"),
            ("hr.attempt", b"3"),
            ("odd name", b"x"),
            ("none", None),
            ("sqs-SenderId", b"me"),
        )
    )
    assert attributes == {
        "trace": MessageAttributeValue(StringValue="abc", DataType="String"),
        "raw": MessageAttributeValue(BinaryValue=b"\xff", DataType="Binary"),
    }
    assert system == {"SenderId": "me"}


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        ("plain\ttext\r\n", True),
        ("\x7f\x80\x9f", True),
        ("\ud7ff\ue000\ufffd\U00010000\U0010ffff", True),
        ("\x00", False),
        ("a\x0bb", False),
        ("\x1f", False),
        ("ü\ufffe", False),
        ("\uffff", False),
        ("\ud800", False),
    ],
)
def test_only_characters_of_xml(text: str, is_valid: bool) -> None:
    assert (contents.valid_bytes(text) is not None) == is_valid
    assert (contents.replace_invalid(text) == text) == is_valid

    async def test(client: Client) -> None:
        url = await client.queue()
        answer = await client.json("SendMessage", QueueUrl=url, MessageBody=text)
        if is_valid:
            assert answer.json["MD5OfMessageBody"] == md5(text)
        else:
            assert answer.status == 400

    run(test)


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({}, (400, "MissingParameter", "The request must contain the parameter MessageBody.")),
        ({"MessageBody": ""}, (400, "MissingParameter", "The request must contain the parameter MessageBody.")),
        (
            {"MessageBody": "x" * 1025},
            (
                400,
                "InvalidParameterValue",
                "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.",
            ),
        ),
        (
            {"MessageBody": "b", "DelaySeconds": 901},
            (
                400,
                "InvalidParameterValue",
                "Value 901 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900.",
            ),
        ),
        (
            {"MessageBody": "b", "MessageDeduplicationId": "d"},
            (
                400,
                "InvalidParameterValue",
                (
                    "Value d for parameter MessageDeduplicationId is invalid. Reason: "
                    "The request include parameter that is not valid for this queue type."
                ),
            ),
        ),
    ],
)
def test_messages_that_are_refused(parameters: dict[str, Any], error: tuple[int, str, str]) -> None:
    async def test(client: Client) -> None:
        url = await client.queue(MaximumMessageSize="1024")
        assert (await client.json("SendMessage", QueueUrl=url, **parameters)).error == error

    run(test)


def test_attributes_count_of_the_size() -> None:
    async def test(client: Client) -> None:
        url = await client.queue(MaximumMessageSize="1024")
        for size, status in ((1024 - 1 - 6 - 1, 200), (1024 - 1 - 6, 400)):
            answer = await client.json(
                "SendMessage", QueueUrl=url, MessageBody="x" * size, MessageAttributes={"a": TEXT}
            )
            assert answer.status == status

    run(test)


def test_a_fifo_queue_wants_a_group_and_an_id() -> None:
    async def test(client: Client) -> None:
        url = await client.queue("line.fifo")
        answer = await client.json("SendMessage", QueueUrl=url, MessageBody="b", MessageDeduplicationId="d")
        assert answer.error == (400, "MissingParameter", "The request must contain the parameter MessageGroupId.")
        answer = await client.json("SendMessage", QueueUrl=url, MessageBody="b", MessageGroupId="g")
        assert "ContentBasedDeduplication enabled" in answer.error[2]
        answer = await client.json(
            "SendMessage", QueueUrl=url, MessageBody="b", MessageGroupId="g", MessageDeduplicationId="d", DelaySeconds=5
        )
        assert "not valid for this queue type" in answer.error[2]
        answer = await client.json(
            "SendMessage", QueueUrl=url, MessageBody="b", MessageGroupId="g" * 129, MessageDeduplicationId="d"
        )
        assert "1 to 128 in length" in answer.error[2]
        sent = (
            await client.json(
                "SendMessage", QueueUrl=url, MessageBody="b", MessageGroupId="g", MessageDeduplicationId="d"
            )
        ).json
        assert sent["SequenceNumber"] == "0" * 20
        (message,) = client.queues.by_name["line.fifo"].sent
        assert (message.group, message.dedupe, message.delay_ms) == ("g", "d", None)
        names = ["SequenceNumber", "MessageGroupId", "MessageDeduplicationId"]
        (got,) = (await client.json("ReceiveMessage", QueueUrl=url, AttributeNames=names)).json["Messages"]
        assert got["Attributes"] == {
            "SequenceNumber": "0" * 20,
            "MessageGroupId": "g",
            "MessageDeduplicationId": "d",
        }

    run(test)


def test_content_based_ids() -> None:
    async def test(client: Client) -> None:
        url = await client.queue("line.fifo", ContentBasedDeduplication="true")
        await client.json("SendMessage", QueueUrl=url, MessageBody="b", MessageGroupId="g")
        (message,) = client.queues.by_name["line.fifo"].sent
        assert message.dedupe == hashlib.sha256(b"b").hexdigest()

    run(test)


def test_a_batch_is_answered_one_by_one() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        entries = [
            {"Id": "good", "MessageBody": "one", "MessageAttributes": {"a": TEXT}},
            {"Id": "late", "MessageBody": "two", "DelaySeconds": 1000},
            {"Id": "odd", "MessageBody": "a\x01"},
            {"Id": "fine", "MessageBody": "three", "DelaySeconds": 3},
        ]
        answer = (await client.json("SendMessageBatch", QueueUrl=url, Entries=entries)).json
        assert [entry["Id"] for entry in answer["Successful"]] == ["good", "fine"]
        assert [(entry["Id"], entry["Code"], entry["SenderFault"]) for entry in answer["Failed"]] == [
            ("late", "InvalidParameterValue", True),
            ("odd", "InvalidMessageContents", True),
        ]
        sent = client.queues.by_name["work"].sent
        assert [(message.body, message.delay_ms) for message in sent] == [(b"one", None), (b"three", 3000)]
        assert len(answer["Successful"][0]["MD5OfMessageAttributes"]) == 32
        assert "MD5OfMessageAttributes" not in answer["Successful"][1]

    run(test)


@pytest.mark.parametrize("action", ["SendMessage", "DeleteMessage", "ChangeMessageVisibility"])
@pytest.mark.parametrize(
    ("ids", "code", "words"),
    [
        ([], "EmptyBatchRequest", "There should be at least one {action}BatchRequestEntry in the request."),
        (
            [f"i{n}" for n in range(11)],
            "TooManyEntriesInBatchRequest",
            "Maximum number of entries per request are 10. You have sent 11.",
        ),
        (["a", "b", "b", "a"], "BatchEntryIdsNotDistinct", "Id b repeated."),
        (["a!"], "InvalidBatchEntryId", "A batch entry id can only contain alphanumeric characters, hyphens and"),
        (["a" * 81], "InvalidBatchEntryId", "It can be at most 80 letters long."),
    ],
)
def test_batches_that_are_refused(action: str, ids: list[str], code: str, words: str) -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        entries = [{"Id": i, "MessageBody": "b", "ReceiptHandle": "0-1", "VisibilityTimeout": 1} for i in ids]
        answer = await client.json(f"{action}Batch", QueueUrl=url, Entries=entries)
        assert answer.error[:2] == (400, f"AWS.SimpleQueueService.{code}")
        assert words.format(action=action) in answer.error[2]
        assert answer.json["__type"] == f"com.amazonaws.sqs#{code}"

    run(test)


def test_a_batch_that_is_too_long() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        entries = [{"Id": str(n), "MessageBody": "x" * 600_000} for n in range(2)]
        answer = await client.json("SendMessageBatch", QueueUrl=url, Entries=entries)
        assert answer.error == (
            400,
            "AWS.SimpleQueueService.BatchRequestTooLong",
            "Batch requests cannot be longer than 1048576 bytes. You have sent 1200000 bytes.",
        )

    run(test)


def test_deleting_and_hiding_in_batches() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        entries: list[dict[str, Any]]
        entries = [{"Id": "a", "ReceiptHandle": "0-1"}, {"Id": "b", "ReceiptHandle": "rubbish"}]
        answer = (await client.json("DeleteMessageBatch", QueueUrl=url, Entries=entries)).json
        assert answer["Successful"] == [{"Id": "a"}]
        assert answer["Failed"] == [
            {
                "Id": "b",
                "SenderFault": True,
                "Code": "ReceiptHandleIsInvalid",
                "Message": 'The input receipt handle "rubbish" is not a valid receipt handle.',
            }
        ]
        entries = [
            {"Id": "a", "ReceiptHandle": "0-1", "VisibilityTimeout": 7},
            {"Id": "b", "ReceiptHandle": "1-gone", "VisibilityTimeout": 7},
            {"Id": "c", "ReceiptHandle": "1-1", "VisibilityTimeout": 43_201},
        ]
        answer = (await client.json("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=entries)).json
        assert answer["Successful"] == [{"Id": "a"}]
        assert {entry["Id"]: entry["Code"] for entry in answer["Failed"]} == {
            "b": "InvalidParameterValue",
            "c": "InvalidParameterValue",
        }
        assert client.queues.asked[-1] == ("extend", [("0-1", 7000), ("1-gone", 7000)])

    run(test)


def test_a_receive_is_passed_on_as_it_is() -> None:
    async def test(client: Client) -> None:
        url = await client.queue("line.fifo")
        await client.json(
            "ReceiveMessage",
            QueueUrl=url,
            MaxNumberOfMessages=7,
            VisibilityTimeout=0,
            WaitTimeSeconds=0,
            ReceiveRequestAttemptId="again",
        )
        (_, options) = client.queues.asked[-1]
        assert (options.max_messages, options.visibility_ms, options.wait_ms) == (7, 0, 0)
        assert options.attempt_id == "again"
        await client.json("ReceiveMessage", QueueUrl=url)
        (_, options) = client.queues.asked[-1]
        assert (options.max_messages, options.visibility_ms, options.wait_ms) == (1, None, None)

    run(test)


def test_ids_are_uuids() -> None:
    found = {UUID(new_id()) for _ in range(1000)}
    assert len(found) == 1000
    assert {(each.version, each.variant) for each in found} == {(4, RFC_4122)}
