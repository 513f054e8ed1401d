"""What the audit log records of requests over HTTP."""

from headrace.security.audit.event import AuditClass, AuditEvent, AuditOutcome
from headrace.security.audit.log import AuditRules
from headrace.sqs.audit import RECORDED
from headrace.sqs.calls import ACTIONS
from headrace.sqs.extended import CALLS

from .fake import Client, run

SECRET = "planted-secret-7731"
READING = {
    *("ChangeMessageVisibility", "ChangeMessageVisibilityBatch", "DeleteMessage", "DeleteMessageBatch"),
    *("GetQueueAttributes", "GetQueueUrl", "ListDeadLetterSourceQueues", "ListMessageMoveTasks", "ListQueues"),
    *("ListQueueTags", "Acknowledge", "Count", "DescribeQueue", "Extend", "GiveBack", "ListMoves", "Peek"),
}
"""Actions that change no more than the state of messages that were received."""


def recorded(client: Client) -> list[AuditEvent]:
    return [each for each in client.security.audit.peek(1_000) if isinstance(each, AuditEvent)]


def audited(client: Client, *classes: AuditClass) -> None:
    client.security.audit.configure(AuditRules(classes=frozenset(classes)))


def test_every_action_is_recorded_or_changes_nothing():
    names = ACTIONS.keys() | {call.__name__ for call in CALLS}
    assert names == RECORDED.keys() | READING
    assert not RECORDED.keys() & READING


def test_changes_are_recorded_with_their_outcome_and_without_values():
    async def test(client: Client) -> None:
        audited(client, AuditClass.ADMIN)
        agent = {"User-Agent": "boto3"}
        await client.json("CreateQueue", more=agent, QueueName="work", Attributes={"DelaySeconds": "5"})
        await client.json("SetQueueAttributes", QueueUrl="work", Attributes={"VisibilityTimeout": SECRET})
        await client.json("TagQueue", QueueUrl="work", Tags={"team": SECRET})
        await client.json("SendMessage", QueueUrl="work", MessageBody=SECRET)
        await client.query("DeleteQueue", {"QueueUrl": "http://x/000000000000/gone"})
        await client.json("DeleteQueue", QueueUrl="work")
        found = recorded(client)
        assert [(each.action, each.resource_name, each.outcome, each.error) for each in found] == [
            ("CreateQueue", "work", AuditOutcome.SUCCESS, ""),
            ("SetQueueAttributes", "work", AuditOutcome.FAILURE, "InvalidAttributeValue"),
            ("TagQueue", "work", AuditOutcome.SUCCESS, ""),
            ("DeleteQueue", "gone", AuditOutcome.FAILURE, "AWS.SimpleQueueService.NonExistentQueue"),
            ("DeleteQueue", "work", AuditOutcome.SUCCESS, ""),
        ]
        assert [each.request for each in found[:3]] == [
            {"attributes": ["DelaySeconds"]},
            {"attributes": ["VisibilityTimeout"]},
            {"tags": ["team"]},
        ]
        assert (found[0].client_id, found[0].resource_type, found[0].operation) == ("boto3", "QUEUE", "CREATE")
        assert SECRET not in repr(found)

    run(test)


def test_calls_of_the_sdk_are_recorded_too():
    async def test(client: Client) -> None:
        audited(client, AuditClass.ADMIN)
        headers = {"X-Amz-Target": "Headrace.CreateQueue", "Content-Type": "application/json"}
        await client.request("POST", "/", headers, b'{"queue": "work", "settings": {"visibility.timeout.ms": "5"}}')
        (created,) = recorded(client)
        assert (created.action, created.resource_name) == ("CreateQueue", "work")
        assert created.request == {"attributes": ["visibility.timeout.ms"]}

    run(test)


def test_sends_and_receives_are_recorded_if_their_class_is():
    async def test(client: Client) -> None:
        await client.queue()
        await client.json("SendMessage", QueueUrl="work", MessageBody="x")
        assert recorded(client) == []
        audited(client, AuditClass.PRODUCE)
        await client.json("SendMessage", QueueUrl="work", MessageBody="x")
        await client.json("ReceiveMessage", QueueUrl="work")
        (sent,) = recorded(client)
        assert (sent.kind, sent.resource_name, sent.operation) == (AuditClass.PRODUCE, "work", "WRITE")
        assert sent.outcome is AuditOutcome.ALLOWED

    run(test)


def test_wrong_signatures_are_failed_logins():
    async def test(client: Client) -> None:
        audited(client, AuditClass.AUTHENTICATION)
        wrong = "AWS4-HMAC-SHA256 Credential=AKBOB/20260131/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0"
        await client.json("ListQueues", more={"Authorization": wrong, "X-Amz-Date": "20260131T235500Z"})
        await client.json("ListQueues")
        by_key, unsigned = recorded(client)
        assert (by_key.outcome, by_key.subject.mechanism) == (AuditOutcome.FAILURE, "SigV4")
        assert by_key.reason.endswith("by the access key AKBOB")
        assert unsigned.reason == "MissingAuthenticationToken"

    run(test, keys={"other": "secret"})
