"""Attributes of messages: what AWS takes, what it refuses in which words, and which of them a receiver gets."""

from typing import Any

import pytest

from .fake import Client, run

TEXT = {"DataType": "String", "StringValue": "v"}
RESERVED = (
    "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for internal "
    "use."
)
CHARACTERS = (
    "Message (user) attributes name can only contain upper and lower score characters, digits, periods, hyphens and "
    "underscores. "
)
TYPES = (
    "The type of message (user) attribute 'x' is invalid. You must use only the following supported type prefixes: "
    "Binary, Number, String."
)
SYSTEM_TYPES = (
    "The type of message system attribute 'AWSTraceHeader' is invalid. You must use only the following supported type "
    "prefixes: String."
)
BINARY = (
    "Invalid binary character '#x8' was found in the message attribute 'x' value, the set of allowed characters is #x9 "
    "| #xA | #xD | [#x20-#xD7FF] | [#xE000-#xFFFD] | [#x10000-#x10FFFF]."
)
TRACE = "Root=1-3152b799-8954dae64eda91bc9a23a7e8;Parent=7fa8c0f79203be72;Sampled=1"


@pytest.mark.parametrize(
    "name",
    ["a", "attr.1øßä", "Ünï-code_9", "x" * 256, "AWSx", "amazonian.x", "名前", "\u0663"],
)
def test_names_that_are_taken(name: str) -> None:
    """Letters and digits of any script: AWS documents those of ASCII, and takes others."""

    async def test(client: Client) -> None:
        url = await client.queue()
        sent = await client.json("SendMessage", QueueUrl=url, MessageBody="b", MessageAttributes={name: TEXT})
        assert sent.status == 200, sent
        answer = await client.json("ReceiveMessage", QueueUrl=url, MessageAttributeNames=[name])
        (got,) = answer.json["Messages"]
        assert got["MessageAttributes"] == {name: TEXT}
        assert got["MD5OfMessageAttributes"] == sent.json["MD5OfMessageAttributes"]

    run(test)


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"": TEXT}, "The request must contain non-empty message (user) attribute names."),
        ({"a b": TEXT}, CHARACTERS),
        ({"Invalid-§-attr": TEXT}, CHARACTERS),
        ({"Invalid-!-attr": TEXT}, CHARACTERS),
        ({"²": TEXT}, CHARACTERS),
        ({"aWs.x": TEXT}, RESERVED),
        ({"AMAZON.x": TEXT}, RESERVED),
        ({".x": TEXT}, "Message (user) attribute name must not begin with character '.'."),
        ({"x.": TEXT}, "Message (user) attribute name must not end with character '.'."),
        ({"a..b": TEXT}, "Message (user) attribute name must not have successive '.' characters."),
        ({"x" * 257: TEXT}, "Message (user) attribute name must be shorter than 256 bytes."),
        ({"ü" * 129: TEXT}, "Message (user) attribute name must be shorter than 256 bytes."),
        ({f"x{n}": TEXT for n in range(11)}, "Number of message attributes [11] exceeds the allowed maximum [10]."),
        ({"x": {}}, "The message (user) attribute 'x' must contain a non-empty message attribute value."),
        (
            {"x": {"StringValue": "v"}},
            "The message (user) attribute 'x' must contain a non-empty message attribute type.",
        ),
        (
            {"x": {"DataType": "Text", "StringValue": "v"}},
            TYPES,
        ),
        (
            {"x": {"DataType": "string", "StringValue": "v"}},
            TYPES,
        ),
        (
            {"x": {"DataType": "Number." + "L" * 250, "StringValue": "1"}},
            "Message (user) attribute type must be shorter than 256 bytes.",
        ),
        (
            {"x": {"DataType": "String", "StringValue": ""}},
            "Message (user) attribute 'x' must contain a non-empty value of type 'String'.",
        ),
        (
            {"x": {"DataType": "String.custom"}},
            "Message (user) attribute 'x' must contain a non-empty value of type 'String.custom'.",
        ),
        (
            {"x": {"DataType": "Number", "BinaryValue": "AA=="}},
            "Message (user) attribute 'x' with type 'Number' must use field 'String'.",
        ),
        (
            {"x": {"DataType": "Binary", "StringValue": "a"}},
            "Message (user) attribute 'x' with type 'Binary' must use field 'Binary'.",
        ),
        (
            {"x": {"DataType": "Binary"}},
            "Message (user) attribute 'x' must contain a non-empty value of type 'Binary'.",
        ),
        (
            {"x": {"DataType": "Binary", "BinaryValue": ""}},
            "Message (user) attribute 'x' must contain a non-empty value of type 'Binary'.",
        ),
        (
            {"x": {"DataType": "String", "StringValue": "v", "BinaryValue": "AA=="}},
            "Message (user) attribute 'x' must have a single value.",
        ),
        (
            {"x": {"DataType": "String", "StringValue": "a\x08"}},
            BINARY,
        ),
        (
            {"x": {"DataType": "Number", "StringValue": "many"}},
            "Can't cast the value of message (user) attribute 'x' to a number.",
        ),
        (
            {"x": {"DataType": "Number.int", "StringValue": "0x1F"}},
            "Can't cast the value of message (user) attribute 'x' to a number.",
        ),
        (
            {"x": {"DataType": "Number", "StringValue": "\u0661"}},
            "Can't cast the value of message (user) attribute 'x' to a number.",
        ),
    ],
)
def test_attributes_that_are_refused(attributes: dict[str, Any], sentence: str) -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        answer = await client.json("SendMessage", QueueUrl=url, MessageBody="b", MessageAttributes=attributes)
        assert answer.error == (400, "InvalidParameterValue", sentence)
        # The same of one entry of a batch, which leaves the others alone.
        entries = [
            {"Id": "bad", "MessageBody": "b", "MessageAttributes": attributes},
            {"Id": "good", "MessageBody": "b"},
        ]
        batch = (await client.json("SendMessageBatch", QueueUrl=url, Entries=entries)).json
        assert batch["Failed"] == [
            {"Id": "bad", "SenderFault": True, "Code": "InvalidParameterValue", "Message": sentence}
        ]
        assert [entry["Id"] for entry in batch["Successful"]] == ["good"]
        assert len(client.queues.by_name["work"].sent) == 1

    run(test)


@pytest.mark.parametrize("values", [{"StringListValues": ["v"]}, {"BinaryListValues": ["AA=="]}])
def test_lists_are_not_supported(values: dict[str, Any]) -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        attributes = {"x": {"DataType": "StringList", **values}}
        answer = await client.json("SendMessage", QueueUrl=url, MessageBody="b", MessageAttributes=attributes)
        assert answer.error == (
            400,
            "AWS.SimpleQueueService.UnsupportedOperation",
            "Message attribute list values in SendMessage operation are not supported.",
        )

    run(test)


@pytest.mark.parametrize(
    ("kind", "text"),
    [("Number", "-1.5e3"), ("Number.bigint", "1234567890123456789012"), ("String.custom.kind", " "), ("Number", "007")],
)
def test_values_that_are_taken(kind: str, text: str) -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        attributes = {"x": {"DataType": kind, "StringValue": text}}
        answer = await client.json("SendMessage", QueueUrl=url, MessageBody="b", MessageAttributes=attributes)
        assert answer.status == 200, answer
        answer = await client.json("ReceiveMessage", QueueUrl=url, MessageAttributeNames=["x"])
        assert answer.json["Messages"][0]["MessageAttributes"] == attributes

    run(test)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["All"], {"Hello", "General", "Help.Me"}),
        (["*"], {"Hello", "General", "Help.Me"}),
        ([".*"], {"Hello", "General", "Help.Me"}),
        (["Hel.*"], {"Hello", "Help.Me"}),
        (["Help.*"], {"Help.Me"}),
        (["Hello", "General"], {"Hello", "General"}),
        (["Hello", "none"], {"Hello"}),
        (["hello"], set()),
        (["Hel*"], set()),
        (["AWS."], set()),
        (["..foo"], set()),
        ([], set()),
    ],
)
def test_which_attributes_a_receiver_gets(names: list[str], found: set[str]) -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        attributes = dict.fromkeys(("Hello", "General", "Help.Me"), TEXT)
        await client.json("SendMessage", QueueUrl=url, MessageBody="msg", MessageAttributes=attributes)
        answer = await client.json("ReceiveMessage", QueueUrl=url, MessageAttributeNames=names)
        (got,) = answer.json["Messages"]
        assert set(got.get("MessageAttributes", {})) == found
        assert ("MD5OfMessageAttributes" in got) == bool(found)

    run(test)


# -- the trace header


async def trace_of(client: Client, url: str) -> str | None:
    """That of the message sent last."""
    answer = await client.json(
        "ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["AWSTraceHeader"]
    )
    found: str | None = answer.json["Messages"][-1].get("Attributes", {}).get("AWSTraceHeader")
    return found


def test_the_trace_id_of_a_request_is_that_of_its_messages() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        header = {"X-Amzn-Trace-Id": TRACE}
        sent = await client.json("SendMessage", QueueUrl=url, MessageBody="b", more=header)
        assert set(sent.json) == {"MessageId", "MD5OfMessageBody"}
        assert await trace_of(client, url) == TRACE
        await client.query("SendMessage", {"QueueUrl": url, "MessageBody": "b"}, more=header)
        assert await trace_of(client, url) == TRACE
        await client.json("SendMessageBatch", QueueUrl=url, Entries=[{"Id": "a", "MessageBody": "b"}], more=header)
        assert await trace_of(client, url) == TRACE
        # What a message says of itself counts more.
        own = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=2"}}
        await client.json("SendMessage", QueueUrl=url, MessageBody="b", MessageSystemAttributes=own, more=header)
        assert await trace_of(client, url) == "Root=2"
        await client.json("SendMessage", QueueUrl=url, MessageBody="b")
        assert await trace_of(client, url) is None
        await client.json("SendMessage", QueueUrl=url, MessageBody="b", more={"X-Amzn-Trace-Id": "x" * 20_000})
        assert await trace_of(client, url) is None

    run(test)


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"Hello": TEXT}, "Message system attribute name 'Hello' is invalid."),
        (
            {"AWSTraceHeader": {"DataType": "Number", "StringValue": "1"}},
            SYSTEM_TYPES,
        ),
        (
            {"AWSTraceHeader": {"DataType": "String", "StringValue": ""}},
            "Message system attribute 'AWSTraceHeader' must contain a non-empty value of type 'String'.",
        ),
        (
            {"AWSTraceHeader": {"DataType": "String", "StringValue": "x" * 20_000}},
            "Message system attribute 'AWSTraceHeader' has invalid characters, or more than 16384 bytes.",
        ),
    ],
)
def test_system_attributes_that_are_refused(attributes: dict[str, Any], sentence: str) -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        answer = await client.json("SendMessage", QueueUrl=url, MessageBody="b", MessageSystemAttributes=attributes)
        assert answer.error == (400, "InvalidParameterValue", sentence)

    run(test)
