"""The two protocols: how lists are written, what JSON is asked for, and requests of the wrong types."""

import json
from typing import Any

import pytest

from .fake import Client, run

FORM = {"Host": "h:1", "Content-Type": "application/x-www-form-urlencoded"}
ACCEPT = {"Accept": "application/json"}
TEXT = {"DataType": "String", "StringValue": "v"}
QUEUE = "/000000000000/work"


# -- lists and maps of the query protocol


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, set()),
        # botocore before 1.31 writes an empty list so.
        ({"AttributeNames": ""}, set()),
        ({"AttributeName": ""}, set()),
        ({"AttributeName": "SenderId"}, {"SenderId"}),
        ({"AttributeName": ["SenderId", "SentTimestamp"]}, {"SenderId", "SentTimestamp"}),
        ({"AttributeName.1": "SenderId"}, {"SenderId"}),
        ({"AttributeName.2": "SenderId", "AttributeName.10": "SentTimestamp"}, {"SenderId", "SentTimestamp"}),
        ({"AttributeNames.1": "SenderId"}, {"SenderId"}),
        (
            {"AttributeNames.member.1": "SenderId", "AttributeNames.member.2": "SentTimestamp"},
            {"SenderId", "SentTimestamp"},
        ),
        ({"AttributeName.member.1": "SenderId"}, {"SenderId"}),
        ({"MessageSystemAttributeName.1": "SenderId"}, {"SenderId"}),
        ({"MessageSystemAttributeNames": "SenderId"}, {"SenderId"}),
    ],
)
def test_lists_in_all_spellings(fields: dict[str, Any], expected: set[str]) -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        await client.json("SendMessage", QueueUrl=url, MessageBody="b")
        answer = await client.query("ReceiveMessage", {"QueueUrl": url, **fields})
        assert answer.status == 200, answer
        found = answer.xml.findall("ReceiveMessageResult/Message/Attribute/Name")
        assert {each.text for each in found} == expected

    run(test)


@pytest.mark.parametrize("prefix", ["MessageAttribute", "MessageAttributes", "MessageAttribute.entry"])
@pytest.mark.parametrize("number", [".1", ""])
def test_maps_in_all_spellings(prefix: str, number: str) -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        fields = {
            f"{prefix}{number}.Name": "user-agent",
            f"{prefix}{number}.Value.DataType": "String",
            f"{prefix}{number}.Value.StringValue": "v",
        }
        answer = await client.query("SendMessage", {"QueueUrl": url, "MessageBody": "b", **fields})
        assert answer.status == 200, answer
        got = await client.json("ReceiveMessage", QueueUrl=url, MessageAttributeNames=["All"])
        assert got.json["Messages"][0]["MessageAttributes"] == {"user-agent": TEXT}

    run(test)


@pytest.mark.parametrize("field", ["MessageAttribute", "MessageAttributes", "MessageSystemAttribute"])
def test_a_map_that_is_empty(field: str) -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        answer = await client.query("SendMessage", {"QueueUrl": url, "MessageBody": "b", field: ""})
        assert answer.status == 200, answer

    run(test)


def test_lists_of_other_actions() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        answer = await client.query("GetQueueAttributes", {"QueueUrl": url, "AttributeName": "QueueArn"})
        assert answer.xml.findtext("GetQueueAttributesResult/Attribute/Name") == "QueueArn"
        answer = await client.query("GetQueueAttributes", {"QueueUrl": url, "AttributeNames": ""})
        assert answer.xml.find("GetQueueAttributesResult/Attribute") is None
        await client.query("TagQueue", {"QueueUrl": url, "Tags.1.Key": "a", "Tags.1.Value": "1"})
        await client.query("TagQueue", {"QueueUrl": url, "Tag.Key": "b", "Tag.Value": "2"})
        assert (await client.json("ListQueueTags", QueueUrl=url)).json == {"Tags": {"a": "1", "b": "2"}}
        await client.query("UntagQueue", {"QueueUrl": url, "TagKey": "a"})
        assert (await client.json("ListQueueTags", QueueUrl=url)).json == {"Tags": {"b": "2"}}
        answer = await client.query(
            "SendMessageBatch",
            {"QueueUrl": url, "Entries.member.1.Id": "a", "Entries.member.1.MessageBody": "b"},
        )
        assert answer.xml.findtext("SendMessageBatchResult/SendMessageBatchResultEntry/Id") == "a"

    run(test)


# -- answers of the query protocol as JSON


def test_answers_as_json() -> None:
    async def test(client: Client) -> None:
        await client.queue()

        async def asked(action: str, **fields: object) -> Any:
            answer = await client.query(action, fields, path=QUEUE, more=ACCEPT)
            assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
            response = answer.json.pop(f"{action}Response")
            assert response.pop("ResponseMetadata") == {"RequestId": answer.headers["x-amzn-requestid"]}
            return response.get(f"{action}Result")

        assert await asked("ReceiveMessage") == {"messages": None}
        sent = await asked("SendMessage", MessageBody="hello")
        assert sent == {
            "MD5OfMessageAttributes": None,
            "MD5OfMessageBody": "5d41402abc4b2a76b9719d911017c592",
            "MD5OfMessageSystemAttributes": None,
            "MessageId": sent["MessageId"],
            "SequenceNumber": None,
        }
        assert await asked("ReceiveMessage") == {
            "messages": [
                {
                    "Attributes": None,
                    "Body": "hello",
                    "MD5OfBody": "5d41402abc4b2a76b9719d911017c592",
                    "MD5OfMessageAttributes": None,
                    "MessageAttributes": None,
                    "MessageId": sent["MessageId"],
                    "ReceiptHandle": "0-1",
                }
            ]
        }
        (message,) = (await asked("ReceiveMessage", AttributeName="ApproximateReceiveCount"))["messages"]
        assert message["Attributes"] == [{"Name": "ApproximateReceiveCount", "Value": "2"}]
        assert await asked("GetQueueAttributes", AttributeName="DelaySeconds") == {
            "Attributes": [{"Name": "DelaySeconds", "Value": "0"}]
        }
        assert await asked("DeleteMessage", ReceiptHandle="0-2") is None
        answer = await client.query("ListQueues", more=ACCEPT)
        assert answer.json["ListQueuesResponse"]["ListQueuesResult"]["queueUrls"] == [f"http://queues.test:9324{QUEUE}"]

    run(test)


def test_errors_as_json() -> None:
    async def test(client: Client) -> None:
        await client.queue()
        answer = await client.query("ListQueues", path=QUEUE, more={"Accept": "text/html, application/json;q=0.9"})
        assert (answer.status, answer.headers["content-type"]) == (400, "application/json")
        assert answer.json == {
            "Error": {
                "Code": "InvalidAction",
                "Message": "The action ListQueues is not valid for this endpoint.",
                "Type": "Sender",
            },
            "RequestId": answer.headers["x-amzn-requestid"],
        }

    run(test)


@pytest.mark.parametrize("accept", ["*/*", "text/xml", "application/jsonx", ""])
def test_other_clients_get_xml(accept: str) -> None:
    async def test(client: Client) -> None:
        await client.queue()
        answer = await client.query("ReceiveMessage", path=QUEUE, more={"Accept": accept})
        assert answer.headers["content-type"] == "text/xml"
        assert b"<ReceiveMessageResult/>" in answer.body

    run(test)


# -- errors of the query protocol


def test_errors_as_xml() -> None:
    async def test(client: Client) -> None:
        await client.queue()
        answer = await client.query("PurgeQueue", {"QueueUrl": "none"})
        assert answer.error == (
            400,
            "AWS.SimpleQueueService.NonExistentQueue",
            "The specified queue does not exist for this wsdl version.",
        )
        assert answer.xml.findtext("Error/Type") == "Sender"
        assert (await client.json("PurgeQueue", QueueUrl="none")).error == (
            400,
            "AWS.SimpleQueueService.NonExistentQueue",
            "The specified queue does not exist.",
        )
        # At the URL of a queue there are no actions on others.
        for action, path in (("FooBar", "/"), ("FooBar", QUEUE), ("CreateQueue", QUEUE), ("ListQueues", QUEUE)):
            assert (await client.query(action, {"QueueName": "other"}, path=path)).error == (
                400,
                "InvalidAction",
                f"The action {action} is not valid for this endpoint.",
            )
        answer = await client.query("SendMessage", path=QUEUE)
        assert answer.error == (400, "MissingParameter", "The request must contain the parameter MessageBody.")

    run(test)


@pytest.mark.parametrize("headers", [{"Host": "h:1"}, {"Host": "h:1", **ACCEPT}])
def test_a_request_without_an_action(headers: dict[str, str]) -> None:
    async def test(client: Client) -> None:
        await client.queue()
        for method, body in (("GET", b""), ("POST", b"QueueName=a"), ("POST", b"Action=")):
            answer = await client.request(method, QUEUE, {**headers, **FORM}, body)
            assert answer.status == 404
            assert answer.body.startswith(b"<UnknownOperationException")

    run(test)


# -- types in the JSON protocol


def test_numbers_and_truth_values_are_taken_for_texts() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        attributes = {
            "number": {"DataType": "String", "StringValue": 2345},
            "truth": {"DataType": "String", "StringValue": True},
        }
        answer = await client.json("SendMessage", QueueUrl=url, MessageBody=0, MessageAttributes=attributes, Odd=[1])
        assert answer.status == 200, answer
        got = await client.json("ReceiveMessage", QueueUrl=url, MessageAttributeNames=["All"])
        (message,) = got.json["Messages"]
        assert message["Body"] == "0"
        assert {name: each["StringValue"] for name, each in message["MessageAttributes"].items()} == {
            "number": "2345",
            "truth": "true",
        }

    run(test)


@pytest.mark.parametrize(
    ("action", "parameters", "sentence"),
    [
        ("SendMessage", {"MessageBody": {}}, "Start of structure or map found where not expected."),
        ("SendMessage", {"MessageBody": []}, "Start of list found where not expected"),
        ("SendMessage", {"DelaySeconds": "5"}, "STRING_VALUE can not be converted to an Integer"),
        ("SendMessage", {"DelaySeconds": "invalid"}, "STRING_VALUE can not be converted to an Integer"),
        ("SendMessage", {"DelaySeconds": True}, "TRUE_VALUE can not be converted to an Integer"),
        ("SendMessage", {"DelaySeconds": 1.5}, "DECIMAL_VALUE can not be converted to an Integer"),
        ("SendMessage", {"DelaySeconds": []}, "Start of list found where not expected"),
        ("SendMessage", {"MessageAttributes": []}, "Start of list found where not expected"),
        ("SendMessage", {"MessageAttributes": {"a": 1}}, "Unexpected value type in payload"),
        (
            "SendMessage",
            {"MessageAttributes": {"a": {"StringValue": {}}}},
            "Start of structure or map found where not expected.",
        ),
        ("SendMessageBatch", {"Entries": {}}, "Start of structure or map found where not expected."),
        ("SendMessageBatch", {"Entries": "a"}, "Expected list or null"),
        ("SendMessageBatch", {"Entries": [{"Id": []}]}, "Start of list found where not expected"),
        (
            "ChangeMessageVisibilityBatch",
            {"Entries": [{"Id": "a", "ReceiptHandle": {}}]},
            "Start of structure or map found where not expected.",
        ),
        ("ReceiveMessage", {"AttributeNames": "All"}, "Expected list or null"),
        ("ReceiveMessage", {"MaxNumberOfMessages": {}}, "Start of structure or map found where not expected."),
    ],
)
def test_values_of_the_wrong_type(action: str, parameters: dict[str, Any], sentence: str) -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        given = {"MessageBody": "b"} if action == "SendMessage" else {}
        answer = await client.json(action, QueueUrl=url, **{**given, **parameters})
        assert answer.status == 400
        assert answer.json == {"__type": "com.amazon.coral.service#SerializationException", "message": sentence}
        assert not client.queues.by_name["work"].sent

    run(test)


def test_a_binary_value_that_is_no_base64() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        attributes: dict[str, dict[str, Any]] = {"a": {"DataType": "Binary", "BinaryValue": "%"}}
        answer = await client.json("SendMessage", QueueUrl=url, MessageBody="b", MessageAttributes=attributes)
        assert answer.json["__type"] == "com.amazon.coral.service#SerializationException"
        attributes = {"a": {"DataType": "Binary", "BinaryValue": "AAH/"}, "n": {"DataType": "Number", "StringValue": 1}}
        answer = await client.json("SendMessage", QueueUrl=url, MessageBody="b", MessageAttributes=attributes)
        assert answer.status == 200
        got = await client.json("ReceiveMessage", QueueUrl=url, MessageAttributeNames=["a"])
        assert got.json["Messages"][0]["MessageAttributes"] == {"a": {"DataType": "Binary", "BinaryValue": "AAH/"}}

    run(test)


def test_requests_of_the_json_protocol_at_the_url_of_a_queue() -> None:
    """As the PHP SDK sends them."""

    async def test(client: Client) -> None:
        url = await client.queue()
        headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "AmazonSQS.ReceiveMessage"}
        answer = await client.request("POST", QUEUE, headers, json.dumps({"QueueUrl": url}).encode())
        assert (answer.status, answer.body) == (200, b"{}")
        assert answer.headers["content-type"] == "application/x-amz-json-1.0"

    run(test)
