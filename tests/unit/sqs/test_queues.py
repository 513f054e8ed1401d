"""CreateQueue, GetQueueUrl and DeleteQueue."""

import json
from typing import Any

import pytest

from headrace.model.ids import TopicName
from headrace.model.image import ClusterImage

from .asking import BASE, attributes, name_error, parameter_error, redrive, value_error
from .fake import ACCOUNT, NOW_MS, Client, run

UNKNOWN = (400, "AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.")
STANDARD_NAME = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
FIFO_NAME = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, must end with .fifo "
    "suffix and be 1 to 80 in length."
)


def test_a_queue_has_the_url_that_the_client_came_by() -> None:
    async def test(client: Client) -> None:
        assert await client.queue() == f"{BASE}/work"
        assert (await client.json("GetQueueUrl", QueueName="work")).json == {"QueueUrl": f"{BASE}/work"}
        assert (await client.json("ListQueues")).json == {"QueueUrls": [f"{BASE}/work"]}
        for url in ("work", f"https://elsewhere/{ACCOUNT}/work", f"/{ACCOUNT}/work"):
            assert (await client.json("PurgeQueue", QueueUrl=url)).status == 200
        for url in ("none", f"{BASE}/none", "http://nowhere", "http://x/1/2/work", "http://x/123456789012/work", "//["):
            assert (await client.json("PurgeQueue", QueueUrl=url)).error == UNKNOWN

    run(test)


def test_the_url_of_a_queue_by_its_name_and_owner() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        for owner in (ACCOUNT, ""):
            found = await client.json("GetQueueUrl", QueueName="work", QueueOwnerAWSAccountId=owner)
            assert found.json == {"QueueUrl": url}
        other = await client.json("GetQueueUrl", QueueName="work", QueueOwnerAWSAccountId="111122223333")
        assert other.error == UNKNOWN
        assert (await client.json("GetQueueUrl", QueueName="Work")).error == UNKNOWN
        for without in (await client.json("GetQueueUrl"), await client.json("GetQueueUrl", QueueName="")):
            assert without.error == parameter_error(
                "Value for parameter QueueName is invalid. Reason: Must specify a queue name."
            )

    run(test)


def test_a_queue_that_does_not_exist_in_both_protocols() -> None:
    async def test(client: Client) -> None:
        answer = await client.json("GetQueueAttributes", QueueUrl="none")
        assert answer.json == {"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": UNKNOWN[2]}
        assert answer.headers["x-amzn-query-error"] == "AWS.SimpleQueueService.NonExistentQueue;Sender"
        for action in ("GetQueueAttributes", "DeleteQueue", "ListQueueTags", "ListDeadLetterSourceQueues"):
            assert (await client.query(action, {"QueueUrl": f"{BASE}/none"})).error == (
                400,
                "AWS.SimpleQueueService.NonExistentQueue",
                "The specified queue does not exist for this wsdl version.",
            )

    run(test)


def test_a_deleted_queue_is_gone() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        assert (await client.json("DeleteQueue", QueueUrl=url)).json == {}
        assert (await client.json("ListQueues")).json == {}
        assert (await client.json("GetQueueUrl", QueueName="work")).error == UNKNOWN
        assert (await client.json("DeleteQueue", QueueUrl=url)).error == UNKNOWN
        assert (await client.json("DeleteQueue")).error[1] == "MissingParameter"

    run(test)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        (None, {}, "Value for parameter QueueName is invalid. Reason: Must specify a queue name."),
        ("", {}, STANDARD_NAME),
        ("x" * 81, {}, STANDARD_NAME),
        ("a/b", {}, STANDARD_NAME),
        ("a.b", {}, STANDARD_NAME),
        ("ü", {}, STANDARD_NAME),
        ("x.fifo", {}, STANDARD_NAME),
        ("x.fifo", {"FifoQueue": "false"}, STANDARD_NAME),
        ("x", {"FifoQueue": "true"}, FIFO_NAME),
        ("x.FIFO", {"FifoQueue": "true"}, FIFO_NAME),
        (".fifo", {"FifoQueue": "true"}, FIFO_NAME),
        ("a b.fifo", {"FifoQueue": "True"}, FIFO_NAME),
        ("x" * 76 + ".fifo", {"FifoQueue": "true"}, FIFO_NAME),
    ],
)
def test_names_that_are_refused(name: str | None, given: dict[str, str], message: str) -> None:
    async def test(client: Client) -> None:
        named = {} if name is None else {"QueueName": name}
        assert (await client.json("CreateQueue", Attributes=given, **named)).error == parameter_error(message)
        assert not client.queues.by_name

    run(test)


def test_the_longest_names() -> None:
    async def test(client: Client) -> None:
        await client.queue("x" * 80)
        await client.queue("x" * 75 + ".fifo")
        await client.queue("A-b_9")

    run(test)


def test_the_type_of_a_queue() -> None:
    async def test(client: Client) -> None:
        for number, text in enumerate(("true", "True", "TRUE")):
            made = await client.json("CreateQueue", QueueName=f"l{number}.fifo", Attributes={"FifoQueue": text})
            assert made.status == 200
            assert client.queues.by_name[f"l{number}.fifo"].info.settings.is_fifo
        for text in ("false", "False"):
            refused = await client.json("CreateQueue", QueueName="work", Attributes={"FifoQueue": text})
            assert refused.error == name_error("Unknown Attribute FifoQueue.")
        for name in ("work", "line.fifo"):
            for text in ("tru", "", "1", " true", "yes"):
                refused = await client.json("CreateQueue", QueueName=name, Attributes={"FifoQueue": text})
                assert refused.error == value_error("FifoQueue")

    run(test)


def test_the_type_of_a_queue_stays() -> None:
    async def test(client: Client) -> None:
        standard, line = await client.queue(), await client.queue("line.fifo")

        async def error(url: str, value: str) -> tuple[int, str, str]:
            changed = await client.json("SetQueueAttributes", QueueUrl=url, Attributes={"FifoQueue": value})
            return changed.error

        for text in ("true", "False"):
            assert await error(standard, text) == name_error("Unknown Attribute FifoQueue.")
        assert await error(standard, "maybe") == value_error("FifoQueue")
        assert await error(line, "maybe") == value_error("FifoQueue")
        assert await error(line, "false") == value_error("FifoQueue", "Modifying queue type is not supported.")
        same = await client.json("SetQueueAttributes", QueueUrl=line, Attributes={"FifoQueue": "True"})
        assert same.status == 200

    run(test)


def policy(effect: str) -> str:
    return json.dumps({"Statement": {"Effect": effect, "Principal": "*", "Action": "sqs:*", "Resource": "*"}})


def test_creating_an_existing_queue() -> None:
    async def test(client: Client) -> None:
        await client.queue("dead")
        given = {
            "DelaySeconds": "5",
            "RedrivePolicy": redrive("dead", "3"),
            "Policy": policy("Deny"),
            "KmsDataKeyReusePeriodSeconds": "300",
        }
        url = await client.queue("work", **given)
        assert await client.queue("work", **given) == url
        assert await client.queue("work") == url
        spelled = {"DelaySeconds": "005", "RedrivePolicy": redrive("dead", "003"), "SqsManagedSseEnabled": "False"}
        assert await client.queue("work", **spelled) == url
        for different in (
            {"DelaySeconds": "6"},
            {"RedrivePolicy": redrive("dead", 4)},
            {"RedrivePolicy": ""},
            {"Policy": policy("Allow")},
            {"KmsMasterKeyId": "alias/aws/sqs"},
            {"KmsDataKeyReusePeriodSeconds": "600"},
            {"SqsManagedSseEnabled": "true"},
        ):
            (name,) = different
            answer = await client.json("CreateQueue", QueueName="work", Attributes=different)
            assert answer.error == (
                400,
                "QueueAlreadyExists",
                f"A queue already exists with the same name and a different value for attribute {name}",
            )
            assert answer.json["__type"] == "com.amazonaws.sqs#QueueNameExists"
        assert (await attributes(client, url, "DelaySeconds")) == {"DelaySeconds": "5"}

    run(test)


def test_creating_an_existing_fifo_queue() -> None:
    async def test(client: Client) -> None:
        url = await client.queue("line.fifo", ContentBasedDeduplication="True")
        assert await client.queue("line.fifo", ContentBasedDeduplication="true") == url
        given = {"FifoQueue": "true", "ContentBasedDeduplication": "false"}
        answer = await client.json("CreateQueue", QueueName="line.fifo", Attributes=given)
        assert answer.error[1:] == (
            "QueueAlreadyExists",
            "A queue already exists with the same name and a different value for attribute ContentBasedDeduplication",
        )

    run(test)


def test_creating_an_existing_queue_with_tags() -> None:
    async def test(client: Client) -> None:
        await client.json("CreateQueue", QueueName="work", tags={"team": "blue"})
        for same in ({"team": "blue"}, {}, None):
            again = await client.json("CreateQueue", QueueName="work", tags=same)
            assert again.status == 200
        for different in ({"team": "red"}, {"team": "blue", "cost": "1"}):
            answer = await client.json("CreateQueue", QueueName="work", tags=different)
            assert answer.error == (
                400,
                "QueueAlreadyExists",
                "A queue already exists with the same name and a different value for tags",
            )
        assert (await client.json("ListQueueTags", QueueUrl="work")).json == {"Tags": {"team": "blue"}}

    run(test)


def test_a_name_is_not_free_at_once() -> None:
    def image(*names: str) -> Any:
        topics = {TopicName(name): type("Topic", (), {"settings": {"queue.type": "standard"}})() for name in names}
        return type("Image", (), {"topics": topics})()

    async def test(client: Client) -> None:
        client.recreate_wait_ms = 60_000
        before: ClusterImage = image("work", "other")
        await client.deletions.image_changed(before, image("other"))
        client.mono_ms += 59_999
        answer = await client.json("CreateQueue", QueueName="work")
        assert answer.error == (
            400,
            "AWS.SimpleQueueService.QueueDeletedRecently",
            "You must wait 60 seconds after deleting a queue before you can create another with the same name.",
        )
        await client.queue("other")
        client.mono_ms += 1
        await client.queue("work")

    run(test)


def test_times_of_a_queue() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        names = ("CreatedTimestamp", "LastModifiedTimestamp")
        now = str(NOW_MS // 1000)
        assert await attributes(client, url, *names) == dict.fromkeys(names, now)
        client.now_ms += 5000
        await client.json("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "1"})
        assert await attributes(client, url, *names) == dict(zip(names, (now, str(NOW_MS // 1000 + 5)), strict=True))

    run(test)
