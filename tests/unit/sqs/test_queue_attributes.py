"""GetQueueAttributes and SetQueueAttributes: every attribute but the policies."""

from typing import Any

import pytest

from headrace.queues.api import QueueEdit

from .asking import Error, arn, attributes, change, name_error, redrive, refusals, value_error
from .fake import NOW_MS, Client, run

EXCLUSIVE = (
    "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE."
)
HIGH_THROUGHPUT = "The perMessageGroupId value is allowed only when the value for DeduplicationScope is messageGroup."


def test_attributes_are_settings() -> None:
    async def test(client: Client) -> None:
        await client.queue("dead")
        given = {
            "VisibilityTimeout": "43200",
            "DelaySeconds": "900",
            "ReceiveMessageWaitTimeSeconds": "20",
            "MaximumMessageSize": "2048",
            "MessageRetentionPeriod": "1209600",
            "RedrivePolicy": redrive("dead", "5"),
        }
        url = await client.queue("work", **given)
        settings = client.queues.by_name["work"].info.settings
        assert (settings.type, settings.visibility_timeout_ms, settings.delay_ms) == ("standard", 43_200_000, 900_000)
        assert (settings.receive_wait_ms, settings.max_message_bytes) == (20_000, 2048)
        assert (settings.retention_ms, settings.dead_letter, settings.max_receives) == (1_209_600_000, "dead", 5)
        shown = await attributes(client, url, *given)
        assert shown == {
            **given,
            "RedrivePolicy": f'{{"deadLetterTargetArn":"{arn("dead")}","maxReceiveCount":5}}',
        }
        await change(client, url, DelaySeconds="1")
        assert await attributes(client, url, "DelaySeconds") == {"DelaySeconds": "1"}

    run(test)


def test_every_attribute_of_a_standard_queue() -> None:
    async def test(client: Client) -> None:
        now = str(NOW_MS // 1000)
        assert await attributes(client, await client.queue(), "All") == {
            "ApproximateNumberOfMessages": "0",
            "ApproximateNumberOfMessagesDelayed": "3",
            "ApproximateNumberOfMessagesNotVisible": "2",
            "CreatedTimestamp": now,
            "DelaySeconds": "0",
            "LastModifiedTimestamp": now,
            "MaximumMessageSize": "1048576",
            "MessageRetentionPeriod": "345600",
            "QueueArn": arn("work"),
            "ReceiveMessageWaitTimeSeconds": "0",
            "SqsManagedSseEnabled": "false",
            "VisibilityTimeout": "30",
        }

    run(test)


def test_a_fifo_queue_has_four_more_attributes() -> None:
    async def test(client: Client) -> None:
        standard = await attributes(client, await client.queue(), "All")
        fifo = await attributes(client, await client.queue("line.fifo"), "All")
        assert {name: fifo[name] for name in fifo.keys() - standard.keys()} == {
            "FifoQueue": "true",
            "ContentBasedDeduplication": "false",
            "DeduplicationScope": "queue",
            "FifoThroughputLimit": "perQueue",
        }
        assert standard.keys() <= fifo.keys()

    run(test)


def test_only_the_attributes_asked_for() -> None:
    async def test(client: Client) -> None:
        url = await client.queue("line.fifo")
        assert await attributes(client, url) == {}
        absent = ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "Policy", "RedrivePolicy", "RedriveAllowPolicy")
        assert await attributes(client, url, *absent) == {}
        assert await attributes(client, url, "FifoQueue", "VisibilityTimeout", "FifoQueue") == {
            "FifoQueue": "true",
            "VisibilityTimeout": "30",
        }

    run(test)


def test_unknown_attributes_cannot_be_asked_for() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        for names, unknown in (
            (["QueueArn", "Nonsense"], "Nonsense"),
            (["All", "Nonsense"], "Nonsense"),
            ([""], ""),
            (["queuearn"], "queuearn"),
            (["FifoQueue"], "FifoQueue"),
            (["ContentBasedDeduplication"], "ContentBasedDeduplication"),
        ):
            answer = await client.json("GetQueueAttributes", QueueUrl=url, AttributeNames=names)
            assert answer.error == name_error(f"Unknown Attribute {unknown}.")
        assert (await client.query("GetQueueAttributes", {"QueueUrl": url, "AttributeName.1": "Foobar"})).error == (
            name_error("Unknown Attribute Foobar.")
        )

    run(test)


def test_nothing_to_set() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        nothing: tuple[dict[str, Any], ...] = ({}, {"Attributes": {}})
        for given in nothing:
            answer = await client.json("SetQueueAttributes", QueueUrl=url, **given)
            assert answer.error == (
                400,
                "MissingParameter",
                "The request must contain the parameter Attribute.Name.",
            )

    run(test)


@pytest.mark.parametrize(
    "name",
    [
        "Nonsense",
        "delaySeconds",
        "All",
        "QueueArn",
        "CreatedTimestamp",
        "LastModifiedTimestamp",
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateNumberOfMessagesNotVisible",
    ],
)
def test_attributes_that_cannot_be_set(name: str) -> None:
    async def test(client: Client) -> None:
        url = await client.queue("here")
        expected = name_error(f"Unknown Attribute {name}.")
        assert await refusals(client, url, "new", {name: "1"}) == [expected, expected]

    run(test)


NUMBERS = {
    "VisibilityTimeout": (0, 43_200),
    "DelaySeconds": (0, 900),
    "ReceiveMessageWaitTimeSeconds": (0, 20),
    "MaximumMessageSize": (1024, 1_048_576),
    "MessageRetentionPeriod": (60, 1_209_600),
    "KmsDataKeyReusePeriodSeconds": (60, 86_400),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str) -> None:
    low, high = NUMBERS[name]

    async def test(client: Client) -> None:
        url = await client.queue("here", KmsMasterKeyId="alias/aws/sqs")
        for text in (str(low), str(high), f"000{high}"):
            await change(client, url, **{name: text})
            assert await attributes(client, url, name) == {name: str(int(text))}
        wrong = [str(low - 1), str(high + 1), "", " ", f" {high}", f"{high} ", f"{high}.0", "1e2", "x", "\u0665\u0665"]
        for text in [*wrong, "9" * 5000]:
            assert await refusals(client, url, "new", {name: text}) == [value_error(name)] * 2

    run(test)


@pytest.mark.parametrize("name", ["ContentBasedDeduplication", "SqsManagedSseEnabled"])
def test_booleans(name: str) -> None:
    async def test(client: Client) -> None:
        url = await client.queue("here.fifo")
        for text in ("true", "False", "TRUE", "false", "True", "FALSE"):
            await change(client, url, **{name: text})
            assert await attributes(client, url, name) == {name: text.lower()}
        for text in ("", "yes", "1", "tru", " true", "truefalse"):
            assert await refusals(client, url, "new.fifo", {name: text}) == [value_error(name)] * 2

    run(test)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("ContentBasedDeduplication", "false", name_error("Unknown Attribute ContentBasedDeduplication.")),
        (
            "DeduplicationScope",
            "queue",
            name_error("You can specify the DeduplicationScope only when FifoQueue is set to true."),
        ),
        (
            "FifoThroughputLimit",
            "perQueue",
            name_error("You can specify the FifoThroughputLimit only when FifoQueue is set to true."),
        ),
    ],
)
def test_attributes_of_fifo_queues_only(name: str, value: str, error: Error) -> None:
    async def test(client: Client) -> None:
        assert await refusals(client, await client.queue("here"), "new", {name: value}) == [error, error]

    run(test)


@pytest.mark.parametrize(("name", "value"), [("DeduplicationScope", "group"), ("FifoThroughputLimit", "PerQueue")])
def test_choices(name: str, value: str) -> None:
    async def test(client: Client) -> None:
        url = await client.queue("here.fifo")
        assert await refusals(client, url, "new.fifo", {name: value}) == [value_error(name)] * 2

    run(test)


def test_high_throughput_needs_the_message_group_as_scope() -> None:
    async def test(client: Client) -> None:
        url = await client.queue("line.fifo")
        refused = value_error("FifoThroughputLimit", HIGH_THROUGHPUT)
        for wrong in ({}, {"DeduplicationScope": "queue"}):
            given = {"FifoThroughputLimit": "perMessageGroupId", **wrong}
            assert await refusals(client, url, "new.fifo", given) == [refused, refused]
        both = {"FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
        await change(client, url, **both)
        assert await attributes(client, url, *both) == both
        alone = await client.json("SetQueueAttributes", QueueUrl=url, Attributes={"DeduplicationScope": "queue"})
        assert alone.error == refused
        await change(client, url, FifoThroughputLimit="perMessageGroupId", VisibilityTimeout="1")
        await change(client, url, DeduplicationScope="queue", FifoThroughputLimit="perQueue")
        await client.queue("other.fifo", **both)

    run(test)


def test_one_kind_of_encryption_at_a_time() -> None:
    async def test(client: Client) -> None:
        url = await client.queue("here", SqsManagedSseEnabled="true")
        both = {"KmsMasterKeyId": "alias/aws/sqs", "SqsManagedSseEnabled": "True"}
        assert await refusals(client, url, "new", both) == [name_error(EXCLUSIVE)] * 2
        names = ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled")
        await change(client, url, KmsMasterKeyId="testKeyId")
        by_key = {
            "KmsMasterKeyId": "testKeyId",
            "KmsDataKeyReusePeriodSeconds": "300",
            "SqsManagedSseEnabled": "false",
        }
        assert await attributes(client, url, *names) == by_key
        await change(client, url, KmsDataKeyReusePeriodSeconds="6000", SqsManagedSseEnabled="false")
        assert await attributes(client, url, *names) == {**by_key, "KmsDataKeyReusePeriodSeconds": "6000"}
        await change(client, url, SqsManagedSseEnabled="true")
        assert await attributes(client, url, *names) == {"SqsManagedSseEnabled": "true"}
        await change(client, url, KmsMasterKeyId="testKeyId")
        await change(client, url, KmsMasterKeyId="", KmsDataKeyReusePeriodSeconds="300")
        assert await attributes(client, url, *names) == {"SqsManagedSseEnabled": "false"}

    run(test)


def test_a_key_has_a_length() -> None:
    async def test(client: Client) -> None:
        url = await client.queue("here", KmsMasterKeyId="k" * 2048)
        assert await refusals(client, url, "new", {"KmsMasterKeyId": "k" * 2049}) == [value_error("KmsMasterKeyId")] * 2

    run(test)


def test_a_fifo_queue_of_the_sdk_may_have_any_name() -> None:
    async def test(client: Client) -> None:
        await client.queues.create("line", QueueEdit({"type": "fifo"}))
        await change(client, "line", ContentBasedDeduplication="true", DeduplicationScope="messageGroup")
        assert await attributes(client, "line", "FifoQueue", "ContentBasedDeduplication") == {
            "FifoQueue": "true",
            "ContentBasedDeduplication": "true",
        }
        await client.queue("dead.fifo")
        await change(client, "line", RedrivePolicy=redrive("dead.fifo"))

    run(test)


def test_numbers_and_booleans_of_json() -> None:
    async def test(client: Client) -> None:
        given = {"FifoQueue": True, "ContentBasedDeduplication": False, "DelaySeconds": 7}
        made = await client.json("CreateQueue", QueueName="line.fifo", Attributes=given)
        assert made.status == 200
        assert await attributes(client, "line.fifo", *given) == {
            "FifoQueue": "true",
            "ContentBasedDeduplication": "false",
            "DelaySeconds": "7",
        }

    run(test)
