"""What the actions on messages refuse: codes and sentences as AWS has them."""

from typing import Any

import pytest

from .fake import Client, run

MIB = 1_048_576
ATTRIBUTE = {"k": {"DataType": "String", "StringValue": "x"}}
ATTRIBUTE_BYTES = 8


def invalid(value: object, parameter: str, reason: str) -> tuple[int, str, str]:
    return 400, "InvalidParameterValue", f"Value {value} for parameter {parameter} is invalid. Reason: {reason}"


def missing(parameter: str) -> tuple[int, str, str]:
    return 400, "MissingParameter", f"The request must contain the parameter {parameter}."


# -- sizes


def too_long(most: int, what: str = "are invalid") -> str:
    return f"One or more parameters {what}. Reason: Message must be shorter than {most} bytes."


@pytest.mark.parametrize("most", [1024, MIB])
def test_the_largest_message(most: int) -> None:
    """Names, types and values of attributes count, and system attributes do not."""
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}

    async def test(client: Client) -> None:
        url = await client.queue(MaximumMessageSize=str(most))
        for body, status in (("x" * (most - 8), 200), ("ü" * (most // 2 - 4), 200), ("x" * (most - 7), 400)):
            answer = await client.json(
                "SendMessage",
                QueueUrl=url,
                MessageBody=body,
                MessageAttributes=ATTRIBUTE,
                MessageSystemAttributes=trace,
            )
            assert answer.status == status
        assert answer.error == (400, "InvalidParameterValue", too_long(most))

    run(test)


def test_the_name_of_an_attribute_counts_in_bytes() -> None:
    async def test(client: Client) -> None:
        url = await client.queue(MaximumMessageSize="1024")
        for size, status in ((1024 - 9, 200), (1024 - 8, 400)):
            answer = await client.json(
                "SendMessage", QueueUrl=url, MessageBody="x" * size, MessageAttributes={"ü": ATTRIBUTE["k"]}
            )
            assert answer.status == status

    run(test)


def test_an_entry_that_is_too_long_fails_alone() -> None:
    async def test(client: Client) -> None:
        url = await client.queue(MaximumMessageSize="1024")
        entries = [{"Id": "fits", "MessageBody": "a" * 1024}, {"Id": "over", "MessageBody": "a" * 1025}]
        answer = (await client.json("SendMessageBatch", QueueUrl=url, Entries=entries)).json
        assert [entry["Id"] for entry in answer["Successful"]] == ["fits"]
        assert answer["Failed"] == [
            {
                "Id": "over",
                "SenderFault": True,
                "Code": "InvalidParameterValue",
                "Message": too_long(1024, "cannot be validated"),
            }
        ]
        # All together may be longer than one.
        entries = [{"Id": str(n), "MessageBody": "a" * 1024} for n in range(10)]
        answer = (await client.json("SendMessageBatch", QueueUrl=url, Entries=entries)).json
        assert len(answer["Successful"]) == 10

    run(test)


def test_a_batch_is_limited_to_a_mebibyte() -> None:
    async def test(client: Client) -> None:
        url = await client.queue(MaximumMessageSize="1024")
        entries = [
            {"Id": "1", "MessageBody": "a" * (MIB - ATTRIBUTE_BYTES), "MessageAttributes": ATTRIBUTE},
            {"Id": "2", "MessageBody": "a"},
        ]
        answer = await client.json("SendMessageBatch", QueueUrl=url, Entries=entries)
        assert answer.error == (
            400,
            "AWS.SimpleQueueService.BatchRequestTooLong",
            "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes.",
        )
        assert not client.queues.by_name["work"].sent

    run(test)


# -- sending


@pytest.mark.parametrize(
    ("body", "character"), [("Invalid-\x00-\x08-\x13-\uffff", "#x0"), ("ok\uffff", "#xFFFF"), ("a\x1f", "#x1F")]
)
def test_characters_of_a_body(body: str, character: str) -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        sentence = (
            f"Invalid binary character '{character}' was found in the message body, the set of allowed characters is "
            "#x9 | #xA | #xD | [#x20-#xD7FF] | [#xE000-#xFFFD] | [#x10000-#x10FFFF]."
        )
        answer = await client.json("SendMessage", QueueUrl=url, MessageBody=body)
        assert answer.error == (400, "InvalidMessageContents", sentence)
        assert answer.json["__type"] == "com.amazonaws.sqs#InvalidMessageContents"
        answer = await client.query("SendMessage", {"QueueUrl": url, "MessageBody": body})
        assert answer.error == (400, "InvalidMessageContents", sentence)
        entries = [{"Id": "odd", "MessageBody": body}, {"Id": "fine", "MessageBody": "a"}]
        batch = (await client.json("SendMessageBatch", QueueUrl=url, Entries=entries)).json
        assert [(each["Id"], each["Code"]) for each in batch["Failed"]] == [("odd", "InvalidMessageContents")]
        assert [each["Id"] for each in batch["Successful"]] == ["fine"]

    run(test)


PLAIN = "can only include alphanumeric and punctuation characters. 1 to 128 in length."


@pytest.mark.parametrize("parameter", ["MessageGroupId", "MessageDeduplicationId"])
@pytest.mark.parametrize("text", ["", "a" * 129, "group 123", "grüppe", "a\x08"])
def test_ids_of_groups_and_messages(parameter: str, text: str) -> None:
    async def test(client: Client) -> None:
        url = await client.queue("line.fifo")
        ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d", parameter: text}
        answer = await client.json("SendMessage", QueueUrl=url, MessageBody="b", **ids)
        assert answer.error == invalid(text, parameter, f"{parameter} {PLAIN}")
        punctuation = "azAZ09!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
        answer = await client.json("SendMessage", QueueUrl=url, MessageBody="b", **{**ids, parameter: punctuation})
        assert answer.status == 200

    run(test)


@pytest.mark.parametrize("text", ["", "a" * 129, "group 123"])
def test_groups_of_a_standard_queue(text: str) -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        answer = await client.json("SendMessage", QueueUrl=url, MessageBody="b", MessageGroupId=text)
        assert answer.error == invalid(text, "MessageGroupId", f"MessageGroupId {PLAIN}")
        assert (await client.json("SendMessage", QueueUrl=url, MessageBody="b", MessageGroupId="g")).status == 200

    run(test)


NO_ID = "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
ENTRY_ID = (
    "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters "
    "long."
)
NOT_OF_THIS_TYPE = "The request include parameter that is not valid for this queue type."


def test_delays() -> None:
    async def test(client: Client) -> None:
        url, line = await client.queue(), await client.queue("line.fifo")
        for delay_s in (-1, 901):
            answer = await client.json("SendMessage", QueueUrl=url, MessageBody="b", DelaySeconds=delay_s)
            assert answer.error == invalid(delay_s, "DelaySeconds", "DelaySeconds must be >= 0 and <= 900.")
        ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
        answer = await client.json("SendMessage", QueueUrl=line, MessageBody="b", DelaySeconds=2, **ids)
        assert answer.error == invalid(2, "DelaySeconds", NOT_OF_THIS_TYPE)
        # The queue's own delay counts.
        assert (await client.json("SendMessage", QueueUrl=line, MessageBody="b", DelaySeconds=0, **ids)).status == 200
        assert client.queues.by_name["line.fifo"].sent[-1].delay_ms is None

    run(test)


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ({"MessageDeduplicationId": "d"}, (400, "InvalidParameterValue", missing("MessageGroupId")[2])),
        (
            {"MessageGroupId": "g"},
            (
                400,
                "InvalidParameterValue",
                NO_ID,
            ),
        ),
        (
            {"MessageGroupId": "g", "MessageDeduplicationId": "d", "DelaySeconds": 3},
            invalid(3, "DelaySeconds", NOT_OF_THIS_TYPE),
        ),
        (
            {"MessageGroupId": "g", "MessageDeduplicationId": "d", "MessageBody": ""},
            (400, "InvalidParameterValue", missing("SendMessageBatchRequestEntry.2.MessageBody")[2]),
        ),
        (
            {"MessageGroupId": "g", "MessageDeduplicationId": "d", "MessageBody": "a" * 1025},
            (400, "InvalidParameterValue", too_long(1024)),
        ),
    ],
)
def test_an_entry_that_a_fifo_queue_refuses_fails_the_batch(entry: dict[str, Any], error: tuple[int, str, str]) -> None:
    """No message overtakes one that could not be sent."""

    async def test(client: Client) -> None:
        url = await client.queue("line.fifo", MaximumMessageSize="1024")
        good = {"Id": "good", "MessageBody": "b", "MessageGroupId": "g", "MessageDeduplicationId": "e"}
        answer = await client.json(
            "SendMessageBatch", QueueUrl=url, Entries=[good, {"Id": "bad", "MessageBody": "b", **entry}]
        )
        assert answer.error == error
        assert not client.queues.by_name["line.fifo"].sent

    run(test)


# -- batches


@pytest.mark.parametrize("action", ["SendMessage", "DeleteMessage", "ChangeMessageVisibility"])
def test_batches_without_entries_or_ids(action: str) -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        assert (await client.json(f"{action}Batch", QueueUrl=url)).error == missing("Entries")
        empty = (
            400,
            "AWS.SimpleQueueService.EmptyBatchRequest",
            f"There should be at least one {action}BatchRequestEntry in the request.",
        )
        assert (await client.json(f"{action}Batch", QueueUrl=url, Entries=[])).error == empty
        # The older protocol cannot tell one from the other; botocore writes an empty list as `Entries=`.
        assert (await client.query(f"{action}Batch", {"QueueUrl": url})).error == empty
        assert (await client.query(f"{action}Batch", {"QueueUrl": url, "Entries": ""})).error == empty
        entry = {"MessageBody": "b", "ReceiptHandle": "0-1", "VisibilityTimeout": 1}
        answer = await client.json(f"{action}Batch", QueueUrl=url, Entries=[{"Id": "a", **entry}, entry])
        assert answer.error == missing(f"{action}BatchRequestEntry.2.Id")
        answer = await client.json(f"{action}Batch", QueueUrl=url, Entries=[{"Id": "", **entry}])
        assert answer.error == (
            400,
            "AWS.SimpleQueueService.InvalidBatchEntryId",
            ENTRY_ID,
        )

    run(test)


def test_what_an_entry_lacks_it_is_told_alone() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()

        async def refused(action: str, entry: dict[str, Any]) -> tuple[str, str]:
            good = {"Id": "good", "MessageBody": "b", "ReceiptHandle": "0-1", "VisibilityTimeout": 1}
            answer = await client.json(f"{action}Batch", QueueUrl=url, Entries=[good, {"Id": "bad", **entry}])
            assert [each["Id"] for each in answer.json["Successful"]] == ["good"]
            (failed,) = answer.json["Failed"]
            assert (failed["Id"], failed["SenderFault"]) == ("bad", True)
            return failed["Code"], failed["Message"]

        for body in ({}, {"MessageBody": ""}):
            assert await refused("SendMessage", body) == missing("SendMessageBatchRequestEntry.2.MessageBody")[1:]
        for receipt in ({}, {"ReceiptHandle": ""}):
            assert await refused("DeleteMessage", receipt) == missing("ReceiptHandle")[1:]
            timeout = {**receipt, "VisibilityTimeout": 1}
            assert await refused("ChangeMessageVisibility", timeout) == missing("ReceiptHandle")[1:]
        assert (
            await refused("ChangeMessageVisibility", {"ReceiptHandle": "0-1"})
            == missing("ChangeMessageVisibilityBatchRequestEntry.2.VisibilityTimeout")[1:]
        )
        assert (
            await refused("ChangeMessageVisibility", {"ReceiptHandle": "0-1", "VisibilityTimeout": -20})
            == invalid(-20, "VisibilityTimeout", "VisibilityTimeout must be an integer between 0 and 43200.")[1:]
        )

    run(test)


# -- receiving


AT_MOST = "Must be >= 0 and <= {}, if provided."


@pytest.mark.parametrize(
    ("parameter", "value", "reason"),
    [
        ("MaxNumberOfMessages", 0, "Must be between 1 and 10, if provided."),
        ("MaxNumberOfMessages", 11, "Must be between 1 and 10, if provided."),
        ("WaitTimeSeconds", -1, AT_MOST.format(20)),
        ("WaitTimeSeconds", 21, AT_MOST.format(20)),
        ("VisibilityTimeout", -1, AT_MOST.format(43_200)),
        ("VisibilityTimeout", 43_201, AT_MOST.format(43_200)),
        ("ReceiveRequestAttemptId", "", f"ReceiveRequestAttemptId {PLAIN}"),
        ("ReceiveRequestAttemptId", "a b", f"ReceiveRequestAttemptId {PLAIN}"),
        ("ReceiveRequestAttemptId", "a" * 129, f"ReceiveRequestAttemptId {PLAIN}"),
    ],
)
def test_what_a_receive_may_ask_for(parameter: str, value: object, reason: str) -> None:
    async def test(client: Client) -> None:
        url = await client.queue("line.fifo")
        answer = await client.json("ReceiveMessage", QueueUrl=url, **{parameter: value})
        assert answer.error == invalid(value, parameter, reason)
        answer = await client.query("ReceiveMessage", {"QueueUrl": url, parameter: value})
        assert answer.error == invalid(value, parameter, reason)

    run(test)


def test_a_standard_queue_passes_over_the_id_of_an_attempt() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        for attempt_id in ("again", "a b"):
            answer = await client.json("ReceiveMessage", QueueUrl=url, ReceiveRequestAttemptId=attempt_id)
            assert answer.status == 200
            assert client.queues.asked[-1][1].attempt_id is None

    run(test)


def test_names_of_system_attributes() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        await client.json("SendMessage", QueueUrl=url, MessageBody="b")
        for parameter in ("AttributeNames", "MessageSystemAttributeNames"):
            answer = await client.json("ReceiveMessage", QueueUrl=url, **{parameter: ["SenderId", "ALL"]})
            assert answer.error == (400, "InvalidAttributeName", "Unknown Attribute ALL.")
            names = ["SqsManagedSseEnabled", "SequenceNumber", "SenderId"]
            answer = await client.json("ReceiveMessage", QueueUrl=url, **{parameter: names})
            assert answer.json["Messages"][0]["Attributes"] == {"SenderId": "000000000000"}

    run(test)


# -- receipts


def test_receipts_that_are_refused() -> None:
    async def test(client: Client) -> None:
        url, line = await client.queue(), await client.queue("line.fifo")
        no_receipt = (
            400,
            "ReceiptHandleIsInvalid",
            'The input receipt handle "garbage" is not a valid receipt handle.',
        )
        answer = await client.json("DeleteMessage", QueueUrl=url, ReceiptHandle="garbage")
        assert answer.error == no_receipt
        hide = {"QueueUrl": url, "VisibilityTimeout": 60}
        assert (await client.json("ChangeMessageVisibility", ReceiptHandle="garbage", **hide)).error == no_receipt
        # An old receipt deletes the message all the same, but not in a fifo queue.
        assert (await client.json("DeleteMessage", QueueUrl=url, ReceiptHandle="0-old")).status == 200
        answer = await client.json("DeleteMessage", QueueUrl=line, ReceiptHandle="0-old")
        assert answer.error == invalid("0-old", "ReceiptHandle", "The receipt handle has expired.")
        assert (await client.json("ChangeMessageVisibility", ReceiptHandle="0-gone", **hide)).error == invalid(
            "0-gone", "ReceiptHandle", "Message does not exist or is not available for visibility timeout change."
        )
        assert (await client.json("ChangeMessageVisibility", ReceiptHandle="0-long", **hide)).error == invalid(
            60,
            "VisibilityTimeout",
            "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]",
        )
        answer = await client.json("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle="0-1")
        assert answer.error == missing("VisibilityTimeout")
        for seconds in (-1, 43_201):
            answer = await client.json(
                "ChangeMessageVisibility", QueueUrl=url, ReceiptHandle="0-1", VisibilityTimeout=seconds
            )
            assert answer.error == invalid(
                seconds, "VisibilityTimeout", "VisibilityTimeout must be an integer between 0 and 43200."
            )
        for receipt in ({}, {"ReceiptHandle": ""}):
            assert (await client.json("DeleteMessage", QueueUrl=url, **receipt)).error == missing("ReceiptHandle")
            assert (await client.json("ChangeMessageVisibility", **hide, **receipt)).error == missing("ReceiptHandle")
        assert (await client.json("PurgeQueue")).error == missing("QueueUrl")

    run(test)
