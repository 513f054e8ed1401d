"""RedrivePolicy and RedriveAllowPolicy."""

import json

import pytest

from .asking import Error, arn, attributes, change, name_error, parameter_error, redrive, refusals, value_error
from .fake import ACCOUNT, Client, run

NOT_JSON = value_error("RedrivePolicy", "Redrive policy is not a valid JSON map.")
NOT_SUPPORTED = value_error(
    "RedriveAllowPolicy",
    "Amazon SQS can't create the redrive allow policy, as it\u2019s in an unsupported format.",
)


def refused(value: str, reason: str, name: str = "RedrivePolicy") -> Error:
    return parameter_error(f"Value {value} for parameter {name} is invalid. Reason: {reason}")


def policy(target: object, count: object = 3, **more: object) -> str:
    return json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": count, **more}, separators=(",", ":"))


def test_a_policy_is_set_and_removed() -> None:
    async def test(client: Client) -> None:
        await client.queue("dead")
        url = await client.queue("work")
        assert await attributes(client, url, "RedrivePolicy") == {}
        for count in (1, 1000, "7", "0042"):
            await change(client, url, RedrivePolicy=redrive("dead", count))
            shown = (await attributes(client, url, "RedrivePolicy"))["RedrivePolicy"]
            assert shown == policy(arn("dead"), int(count))
        assert (await client.json("ListDeadLetterSourceQueues", QueueUrl="dead")).json == {"queueUrls": [url]}
        await change(client, url, RedrivePolicy="")
        assert await attributes(client, url, "RedrivePolicy") == {}
        assert (await client.json("ListDeadLetterSourceQueues", QueueUrl="dead")).json == {"queueUrls": []}

    run(test)


@pytest.mark.parametrize("value", ["no json", "[]", "5", "null", '"text"', "{", "[" * 5000, " " * 9000 + "{}"])
def test_policies_that_are_no_json_map(value: str) -> None:
    async def test(client: Client) -> None:
        assert await refusals(client, await client.queue(), "new", {"RedrivePolicy": value}) == [NOT_JSON, NOT_JSON]

    run(test)


WRONG_COUNTS: list[tuple[object, object]] = [
    *((wrong, wrong) for wrong in (0, 1001, -36, 1.5, "0", "1001", "many", " 5", "")),
    (True, "true"),
    (None, "null"),
    ([], "[]"),
]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("{}", "Redrive policy does not contain mandatory attribute: maxReceiveCount."),
        ('{"maxReceiveCount":5}', "Redrive policy does not contain mandatory attribute: deadLetterTargetArn."),
        (
            f'{{"deadLetterTargetArn":"{arn("dead")}"}}',
            "Redrive policy does not contain mandatory attribute: maxReceiveCount.",
        ),
        (
            policy(arn("dead"), 5, more=1),
            "Only following attributes are supported: [deadLetterTargetArn, maxReceiveCount].",
        ),
        *(
            (
                policy(arn("dead"), count),
                f"Invalid value for maxReceiveCount: {shown}, valid values are from 1 to 1000 both inclusive.",
            )
            for count, shown in WRONG_COUNTS
        ),
        (policy(5), "Invalid value for deadLetterTargetArn."),
        *(
            (policy(text), "Dead-letter target ARN should be fully qualified ARN.")
            for text in ("dummy", "", "dead", "arn:aws:sqs:us-east-1:dead", f"{arn('dead')}:x", arn(""), "arn:x:" * 6)
        ),
        (
            policy(f"arn:aws:sns:us-east-1:{ACCOUNT}:dead"),
            "Only SQS queues are valid resources for deadLetterTargetArn.",
        ),
        (policy(arn("dead", region="eu-west-1")), "Dead-letter target must be in same region as the source."),
        (
            policy(arn("dead", account="111122223333")),
            "Dead-letter target owner should be same as the source.",
        ),
        (policy(arn("none")), "Dead letter target does not exist."),
        (policy(arn("line.fifo")), "Dead-letter queue must be same type of queue as the source.."),
        (policy(arn("closed")), f"Queue {arn('closed')} does not allow this queue to use it as a dead-letter queue."),
    ],
)
def test_policies_that_are_refused(value: str, reason: str) -> None:
    async def test(client: Client) -> None:
        await client.queue("dead")
        await client.queue("closed", RedriveAllowPolicy='{"redrivePermission":"denyAll"}')
        await client.queue("line.fifo")
        url = await client.queue("here")
        assert await refusals(client, url, "new", {"RedrivePolicy": value}) == [refused(value, reason)] * 2
        assert await attributes(client, url, "RedrivePolicy") == {}

    run(test)


def test_a_wrong_count_that_no_text_can_have() -> None:
    async def test(client: Client) -> None:
        value = f'{{"deadLetterTargetArn":"{arn("dead")}","maxReceiveCount":"\\ud800"}}'
        answer = await client.json("CreateQueue", QueueName="new", Attributes={"RedrivePolicy": value})
        assert answer.error[:2] == (400, "InvalidParameterValue")

    run(test)


def test_a_fifo_queue_has_fifo_dead_letters() -> None:
    async def test(client: Client) -> None:
        await client.queue("dead")
        await client.queue("dead.fifo")
        url = await client.queue("line.fifo", RedrivePolicy=redrive("dead.fifo"))
        wrong = policy(arn("dead"))
        expected = refused(wrong, "Dead-letter queue must be same type of queue as the source..")
        assert await refusals(client, url, "new.fifo", {"RedrivePolicy": wrong}) == [expected, expected]

    run(test)


def test_a_queue_may_become_its_own_dead_letter_queue() -> None:
    async def test(client: Client) -> None:
        own = policy(arn("work"), 42)
        made = await client.json("CreateQueue", QueueName="work", Attributes={"RedrivePolicy": own})
        assert made.error == refused(own, "Dead letter target does not exist.")
        url = await client.queue("work")
        await change(client, url, RedrivePolicy=own)
        assert await attributes(client, url, "RedrivePolicy") == {"RedrivePolicy": own}
        assert await client.queue("work", RedrivePolicy=own) == url
        assert (await client.json("ListDeadLetterSourceQueues", QueueUrl=url)).json == {"queueUrls": [url]}
        settings = client.queues.by_name["work"].info.settings
        assert (settings.dead_letter, settings.max_receives) == ("", 0)
        moved = await client.json("StartMessageMoveTask", SourceArn=arn("work"))
        assert moved.error == parameter_error("Source queue must be configured as a Dead Letter Queue.")
        await client.queue("dead")
        await change(client, url, RedrivePolicy=redrive("dead"))
        assert await attributes(client, url, "RedrivePolicy") == {"RedrivePolicy": policy(arn("dead"))}
        await change(client, url, RedrivePolicy=own)
        await change(client, url, RedrivePolicy="")
        assert await attributes(client, url, "RedrivePolicy") == {}

    run(test)


# -- which queues may use it


def test_whom_a_dead_letter_queue_allows() -> None:
    async def test(client: Client) -> None:
        allow = json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [arn("friend")]})
        dead = await client.queue("dead", RedriveAllowPolicy=allow)
        assert await attributes(client, dead, "RedriveAllowPolicy") == {"RedriveAllowPolicy": allow}
        await client.queue("friend", RedrivePolicy=redrive("dead"))
        answer = await client.json("CreateQueue", QueueName="other", Attributes={"RedrivePolicy": redrive("dead")})
        assert "does not allow" in answer.error[2]
        for value in ('{"redrivePermission":"allowAll"}', ""):
            await change(client, dead, RedriveAllowPolicy='{"redrivePermission":"denyAll"}')
            await change(client, dead, RedriveAllowPolicy=value)
            await client.queue(f"other{len(value)}", RedrivePolicy=redrive("dead"))
        assert await attributes(client, dead, "RedriveAllowPolicy") == {}

    run(test)


@pytest.mark.parametrize(
    "value",
    [
        "no json",
        "[]",
        "{}",
        '{"redrivePermission":"ALL"}',
        '{"redrivePermission":"allowAll","more":1}',
        '{"redrivePermission":"byQueue","sourceQueueArns":"a"}',
        '{"redrivePermission":"byQueue","sourceQueueArns":[1]}',
    ],
)
def test_allow_policies_in_an_unsupported_format(value: str) -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        assert await refusals(client, url, "new", {"RedriveAllowPolicy": value}) == [NOT_SUPPORTED, NOT_SUPPORTED]

    run(test)


def allow_policy(permission: str, count: int | None) -> str:
    sources = {} if count is None else {"sourceQueueArns": [arn(f"q{number}") for number in range(count)]}
    return json.dumps({"redrivePermission": permission, **sources})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            allow_policy("byQueue", None),
            "When you specify the byQueue permission type, you must also specify one or more sourceQueueArns values.",
        ),
        (
            allow_policy("byQueue", 0),
            "When you specify the byQueue permission type, you must also specify one or more sourceQueueArns values.",
        ),
        (allow_policy("byQueue", 11), "The maximum number of source queue ARNs you can specify is 10."),
        (
            allow_policy("allowAll", 1),
            "To specify one or more source queue ARNs, you must set redrivePermission to byQueue.",
        ),
        (
            allow_policy("denyAll", 1),
            "To specify one or more source queue ARNs, you must set redrivePermission to byQueue.",
        ),
    ],
)
def test_allow_policies_that_are_refused(value: str, reason: str) -> None:
    async def test(client: Client) -> None:
        expected = refused(value, f"Amazon SQS can't create the redrive allow policy. {reason}", "RedriveAllowPolicy")
        url = await client.queue()
        assert await refusals(client, url, "new", {"RedriveAllowPolicy": value}) == [expected, expected]
        await change(client, url, RedriveAllowPolicy=allow_policy("byQueue", 10))

    run(test)


def test_the_attribute_has_this_name_only() -> None:
    async def test(client: Client) -> None:
        url = await client.queue()
        given = {"redrivePolicy": redrive("dead")}
        assert await refusals(client, url, "new", given) == [name_error("Unknown Attribute redrivePolicy.")] * 2

    run(test)
