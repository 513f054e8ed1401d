"""Queues and what belongs to them, by the JSON protocol."""

import json
from typing import Any

import pytest

from headrace.model.ids import TopicName
from headrace.model.image import ClusterImage

from .fake import ACCOUNT, NOW_MS, Client, run

BASE = f"http://queues.test:9324/{ACCOUNT}"


def arn(queue: str) -> str:
    return f"arn:aws:sqs:us-east-1:{ACCOUNT}:{queue}"


def redrive(queue: str, most: object = 3) -> str:
    return json.dumps({"deadLetterTargetArn": arn(queue), "maxReceiveCount": most})


async def attributes(client: Client, url: str, *names: str) -> dict[str, str]:
    answer = await client.json("GetQueueAttributes", QueueUrl=url, AttributeNames=list(names))
    assert answer.status == 200, answer
    return dict(answer.json.get("Attributes", {}))


def test_a_queue_has_the_url_that_the_client_came_by() -> None:
    async def test(client: Client) -> None:
        assert await client.queue() == f"{BASE}/work"
        assert (await client.json("GetQueueUrl", QueueName="work")).json == {"QueueUrl": f"{BASE}/work"}
        assert (await client.json("ListQueues")).json == {"QueueUrls": [f"{BASE}/work"]}
        for url in ("work", f"https://elsewhere/{ACCOUNT}/work", f"/{ACCOUNT}/work"):
            assert (await client.json("PurgeQueue", QueueUrl=url)).status == 200
        for url in ("none", f"{BASE}/none", "http://nowhere", "http://x/1/2/work", "http://x/123456789012/work", "//["):
            assert (await client.json("PurgeQueue", QueueUrl=url)).error == (
                400,
                "AWS.SimpleQueueService.NonExistentQueue",
                "The specified queue does not exist.",
            )
        assert (await client.json("DeleteQueue", QueueUrl=f"{BASE}/work")).status == 200
        assert (await client.json("ListQueues")).json == {}
        assert (await client.json("GetQueueUrl", QueueName="work")).error[0] == 400
        assert (await client.json("GetQueueUrl")).error[1] == "MissingParameter"

    run(test)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("", {}),
        ("x" * 81, {}),
        ("a/b", {}),
        ("a.b", {}),
        ("ü", {}),
        ("x.fifo", {}),
        ("x", {"FifoQueue": "true"}),
        (".fifo", {"FifoQueue": "true"}),
        ("x" * 76 + ".fifo", {"FifoQueue": "true"}),
    ],
)
def test_names_that_are_refused(name: str, given: dict[str, str]) -> None:
    async def test(client: Client) -> None:
        answer = await client.json("CreateQueue", QueueName=name, Attributes=given)
        assert answer.error[:2] == (400, "InvalidParameterValue")
        assert not client.queues.by_name

    run(test)


def test_the_longest_names() -> None:
    async def test(client: Client) -> None:
        await client.queue("x" * 80)
        await client.queue("x" * 75 + ".fifo")
        await client.queue("A-b_9")

    run(test)


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
        shown = await attributes(client, url, "All")
        assert {name: shown[name] for name in given if name != "RedrivePolicy"} == {
            name: value for name, value in given.items() if name != "RedrivePolicy"
        }
        assert shown["RedrivePolicy"] == f'{{"deadLetterTargetArn":"{arn("dead")}","maxReceiveCount":5}}'
        assert shown["QueueArn"] == arn("work")
        assert shown["CreatedTimestamp"] == shown["LastModifiedTimestamp"] == str(NOW_MS // 1000)
        assert shown["ApproximateNumberOfMessages"] == "0"
        assert shown["ApproximateNumberOfMessagesNotVisible"] == "2"
        assert shown["ApproximateNumberOfMessagesDelayed"] == "3"
        assert not {"FifoQueue", "Policy", "KmsMasterKeyId", "RedriveAllowPolicy"} & shown.keys()
        sources = (await client.json("ListDeadLetterSourceQueues", QueueUrl="dead")).json
        assert sources == {"queueUrls": [url]}
        client.now_ms += 5000
        changed = await client.json(
            "SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": "", "DelaySeconds": "1"}
        )
        assert changed.status == 200
        shown = await attributes(client, url, "All")
        assert shown["DelaySeconds"] == "1"
        assert "RedrivePolicy" not in shown
        assert shown["LastModifiedTimestamp"] == str(NOW_MS // 1000 + 5)
        assert (await client.json("ListDeadLetterSourceQueues", QueueUrl="dead")).json == {"queueUrls": []}

    run(test)


def test_only_what_was_asked_for() -> None:
    async def test(client: Client) -> None:
        url = await client.queue("line.fifo")
        assert await attributes(client, url) == {}
        assert await attributes(client, url, "KmsMasterKeyId") == {}
        assert await attributes(client, url, "FifoQueue", "DeduplicationScope", "FifoThroughputLimit") == {
            "FifoQueue": "true",
            "DeduplicationScope": "queue",
            "FifoThroughputLimit": "perQueue",
        }
        answer = await client.json("GetQueueAttributes", QueueUrl=url, AttributeNames=["QueueArn", "Nonsense"])
        assert answer.error == (400, "InvalidAttributeName", "Unknown Attribute Nonsense.")

    run(test)


def test_what_is_kept_without_effect() -> None:
    async def test(client: Client) -> None:
        kept = {
            "Policy": '{"Version":"2012-10-17","Statement":[]}',
            "KmsMasterKeyId": "alias/aws/sqs",
            "KmsDataKeyReusePeriodSeconds": "300",
            "SqsManagedSseEnabled": "true",
            "RedriveAllowPolicy": '{"redrivePermission":"denyAll"}',
        }
        url = await client.queue(**kept)
        assert await attributes(client, url, *kept) == kept
        await client.json("SetQueueAttributes", QueueUrl=url, Attributes={"Policy": "", "KmsMasterKeyId": ""})
        assert not {"Policy", "KmsMasterKeyId"} & (await attributes(client, url, "All")).keys()

    run(test)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("Nonsense", "1", "InvalidAttributeName"),
        ("QueueArn", "arn", "InvalidAttributeName"),
        ("ContentBasedDeduplication", "true", "InvalidAttributeName"),
        ("VisibilityTimeout", "43201", "InvalidAttributeValue"),
        ("VisibilityTimeout", "-1", "InvalidAttributeValue"),
        ("VisibilityTimeout", "", "InvalidAttributeValue"),
        ("DelaySeconds", "901", "InvalidAttributeValue"),
        ("DelaySeconds", "1.5", "InvalidAttributeValue"),
        ("ReceiveMessageWaitTimeSeconds", "21", "InvalidAttributeValue"),
        ("MaximumMessageSize", "1023", "InvalidAttributeValue"),
        ("MaximumMessageSize", "1048577", "InvalidAttributeValue"),
        ("MessageRetentionPeriod", "59", "InvalidAttributeValue"),
        ("MessageRetentionPeriod", "1209601", "InvalidAttributeValue"),
        ("FifoQueue", "maybe", "InvalidAttributeValue"),
        ("SqsManagedSseEnabled", "yes", "InvalidAttributeValue"),
        ("KmsDataKeyReusePeriodSeconds", "59", "InvalidAttributeValue"),
        ("Policy", "no json", "InvalidAttributeValue"),
        ("RedrivePolicy", "no json", "InvalidParameterValue"),
        ("RedrivePolicy", "{}", "InvalidParameterValue"),
        ("RedrivePolicy", redrive("none"), "InvalidParameterValue"),
        ("RedrivePolicy", redrive("line.fifo"), "InvalidParameterValue"),
        ("RedrivePolicy", redrive("dead", 0), "InvalidParameterValue"),
        ("RedrivePolicy", redrive("dead", 1001), "InvalidParameterValue"),
        ("RedrivePolicy", redrive("dead", "many"), "InvalidParameterValue"),
        ("RedrivePolicy", redrive("closed"), "InvalidParameterValue"),
        ("RedriveAllowPolicy", "{}", "InvalidParameterValue"),
        ("RedriveAllowPolicy", '{"redrivePermission":"byQueue"}', "InvalidParameterValue"),
        ("RedriveAllowPolicy", '{"redrivePermission":"allowAll","sourceQueueArns":["a"]}', "InvalidParameterValue"),
    ],
)
def test_attributes_that_are_refused(name: str, value: str, code: str) -> None:
    async def test(client: Client) -> None:
        await client.queue("dead")
        await client.queue("closed", RedriveAllowPolicy='{"redrivePermission":"denyAll"}')
        await client.queue("line.fifo")
        url = await client.queue("here")
        for answer in (
            await client.json("CreateQueue", QueueName="new", Attributes={name: value}),
            await client.json("SetQueueAttributes", QueueUrl=url, Attributes={name: value}),
        ):
            assert answer.error[:2] == (400, code)
        assert "new" not in client.queues.by_name

    run(test)


def test_whom_a_dead_letter_queue_allows() -> None:
    async def test(client: Client) -> None:
        allow = json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [arn("friend")]})
        await client.queue("dead", RedriveAllowPolicy=allow)
        await client.queue("friend", RedrivePolicy=redrive("dead"))
        answer = await client.json("CreateQueue", QueueName="other", Attributes={"RedrivePolicy": redrive("dead")})
        assert "does not allow" in answer.error[2]

    run(test)


def test_creating_what_is_there() -> None:
    async def test(client: Client) -> None:
        await client.queue("dead")
        given = {"DelaySeconds": "5", "RedrivePolicy": redrive("dead", "3")}
        url = await client.queue("work", **given)
        assert await client.queue("work", **given) == url
        assert await client.queue("work") == url
        answer = await client.json("CreateQueue", QueueName="work", Attributes={"DelaySeconds": "6"})
        assert answer.error == (
            400,
            "QueueAlreadyExists",
            "A queue already exists with the same name and a different value for attribute DelaySeconds",
        )
        assert answer.json["__type"] == "com.amazonaws.sqs#QueueNameExists"

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


def test_lists_in_pages() -> None:
    async def test(client: Client) -> None:
        names = [f"q{number}" for number in range(7)]
        for name in names:
            await client.queue(name)
        await client.queue("other")
        found: list[str] = []
        token = None
        for expected in (3, 3, 1):
            more = {"NextToken": token} if token else {}
            page = (await client.json("ListQueues", QueueNamePrefix="q", MaxResults=3, **more)).json
            assert len(page["QueueUrls"]) == expected
            found += page["QueueUrls"]
            token = page.get("NextToken")
        assert token is None
        assert found == [f"{BASE}/{name}" for name in names]
        for parameters in ({"MaxResults": 0}, {"MaxResults": 1001}, {"MaxResults": 1, "NextToken": "%%"}):
            assert (await client.json("ListQueues", **parameters)).error[:2] == (400, "InvalidParameterValue")

    run(test)


def test_tags() -> None:
    async def test(client: Client) -> None:
        answer = await client.json("CreateQueue", QueueName="work", tags={"team": "blue"})
        url = answer.json["QueueUrl"]
        await client.json("TagQueue", QueueUrl=url, Tags={"team": "red", "cost": ""})
        assert (await client.json("ListQueueTags", QueueUrl=url)).json == {"Tags": {"team": "red", "cost": ""}}
        await client.json("UntagQueue", QueueUrl=url, TagKeys=["team", "none"])
        assert (await client.json("ListQueueTags", QueueUrl=url)).json == {"Tags": {"cost": ""}}
        many = {f"t{number}": "v" for number in range(50)}
        assert "Too many tags" in (await client.json("TagQueue", QueueUrl=url, Tags=many)).error[2]
        assert (await client.json("TagQueue", QueueUrl=url, Tags={})).error[1] == "MissingParameter"
        assert "between 1 and 128" in (await client.json("TagQueue", QueueUrl=url, Tags={"x" * 129: ""})).error[2]
        assert "between 1 and 128" in (await client.json("UntagQueue", QueueUrl=url, TagKeys=[])).error[2]
        await client.json("UntagQueue", QueueUrl=url, TagKeys=["cost"])
        assert (await client.json("ListQueueTags", QueueUrl=url)).json == {}

    run(test)


def test_permissions() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        added = await client.json(
            "AddPermission", QueueUrl=url, Label="a", AWSAccountIds=["111122223333"], Actions=["SendMessage"]
        )
        assert added.status == 200
        await client.json("AddPermission", QueueUrl=url, Label="b", AWSAccountIds=["1", "2"], Actions=["*"])
        policy = json.loads((await attributes(client, url, "Policy"))["Policy"])
        assert policy["Statement"][0] == {
            "Sid": "a",
            "Effect": "Allow",
            "Principal": {"AWS": "arn:aws:iam::111122223333:root"},
            "Action": "SQS:SendMessage",
            "Resource": arn("work"),
        }
        again = await client.json("AddPermission", QueueUrl=url, Label="a", AWSAccountIds=["1"], Actions=["*"])
        assert again.error[2] == "Value a for parameter Label is invalid. Reason: Already exists."
        many = await client.json("AddPermission", QueueUrl=url, Label="c", AWSAccountIds=["1"], Actions=["*"] * 8)
        assert many.error == (403, "OverLimit", "8 Actions were found, maximum allowed is 7.")
        for label in ("a", "b"):
            assert (await client.json("RemovePermission", QueueUrl=url, Label=label)).status == 200
        assert "Policy" not in await attributes(client, url, "All")
        assert "can't find label" in (await client.json("RemovePermission", QueueUrl=url, Label="a")).error[2]

    run(test)


def test_moves() -> None:
    async def test(client: Client) -> None:
        await client.queue("dead")
        await client.queue("work", RedrivePolicy=redrive("dead"))
        assert (await client.json("StartMessageMoveTask", SourceArn=arn("none"))).error[:2] == (
            404,
            "ResourceNotFoundException",
        )
        answer = await client.json("StartMessageMoveTask", SourceArn=arn("work"))
        assert "must be configured as a Dead Letter Queue" in answer.error[2]
        answer = await client.json("StartMessageMoveTask", SourceArn=arn("dead"), MaxNumberOfMessagesPerSecond=501)
        assert answer.error[1] == "InvalidParameterValue"
        started = await client.json(
            "StartMessageMoveTask", SourceArn=arn("dead"), DestinationArn=arn("work"), MaxNumberOfMessagesPerSecond=50
        )
        handle = started.json["TaskHandle"]
        again = await client.json("StartMessageMoveTask", SourceArn=arn("dead"))
        assert again.error[1] == "AWS.SimpleQueueService.UnsupportedOperation"
        assert (await client.json("ListMessageMoveTasks", SourceArn=arn("dead"))).json == {
            "Results": [
                {
                    "TaskHandle": handle,
                    "Status": "RUNNING",
                    "SourceArn": arn("dead"),
                    "DestinationArn": arn("work"),
                    "MaxNumberOfMessagesPerSecond": 50,
                    "ApproximateNumberOfMessagesMoved": 1,
                    "ApproximateNumberOfMessagesToMove": 7,
                    "StartedTimestamp": NOW_MS,
                }
            ]
        }
        cancelled = await client.json("CancelMessageMoveTask", TaskHandle=handle)
        assert cancelled.json == {"ApproximateNumberOfMessagesMoved": 5}
        (shown,) = (await client.json("ListMessageMoveTasks", SourceArn=arn("dead"))).json["Results"]
        assert shown["Status"] == "CANCELLED"
        assert "TaskHandle" not in shown
        assert (await client.json("CancelMessageMoveTask", TaskHandle=handle)).error[0] == 404
        assert (await client.json("CancelMessageMoveTask", TaskHandle="?")).error[0] in (400, 404)

    run(test)
