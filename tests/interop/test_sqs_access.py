"""Who may do what with queues over HTTP: every action and call of a real broker, generated from their declarations."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, NamedTuple

import pytest

from headrace.model.acls import CLUSTER_NAME, AclOperation
from headrace.sqs.calls import ACTIONS, QueueNeed
from headrace.sqs.extended import CALLS

from .secured import ACCOUNT, ADMIN, REGION, Key, SecuredBroker, SignedAnswer, secured_broker

READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, ALTER_CONFIGS, DESCRIBE = AclOperation.ALTER, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE
DENIED, WRONG, UNKNOWN, MISSING = (
    (403, "AccessDenied"),
    (403, "SignatureDoesNotMatch"),
    (403, "InvalidClientTokenId"),
    (403, "MissingAuthenticationToken"),
)


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with secured_broker() as broker:
        yield broker


@pytest.fixture(scope="module")
def bob(broker: SecuredBroker) -> Key:
    return broker.user("bob")


def outcome(answer: SignedAnswer) -> tuple[int, str]:
    return answer.status, answer.code


def arn(queue: str) -> str:
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}"


def user_arn(user: str) -> str:
    return f"arn:aws:iam::{ACCOUNT}:user/{user}"


# -- the matrix


class Sample(NamedTuple):
    """A request and the permissions that it needs, by queue."""

    parameters: dict[str, Any]
    grants: list[tuple[AclOperation, str]]


class Scene:
    """Queues for one sample, which have a name of their own."""

    def __init__(self, broker: SecuredBroker, name: str) -> None:
        self.broker = broker
        self.queue = name

    def made(self, suffix: str = "", **attributes: str) -> str:
        name = self.queue + suffix
        self.broker.as_admin("CreateQueue", QueueName=name, Attributes=attributes)
        return name

    def receipt(self) -> str:
        queue = self.made()
        self.broker.as_admin("SendMessage", QueueUrl=queue, MessageBody="hello")
        (message,) = self.broker.as_admin("ReceiveMessage", QueueUrl=queue, WaitTimeSeconds=5)["Messages"]
        return str(message["ReceiptHandle"])

    def dead_letters(self) -> tuple[str, str]:
        """A dead-letter queue with messages, and the queue that it belongs to."""
        dead = self.made("-dead")
        source = self.made(RedrivePolicy=redrive_policy(dead))
        entries = [{"Id": str(number), "MessageBody": "x"} for number in range(5)]
        self.broker.as_admin("SendMessageBatch", QueueUrl=dead, Entries=entries)
        return dead, source

    def task(self) -> tuple[str, str]:
        """The handle of a task that runs for some seconds, and its source."""
        dead, source = self.dead_letters()
        started = self.broker.as_admin(
            "StartMessageMoveTask", SourceArn=arn(dead), DestinationArn=arn(source), MaxNumberOfMessagesPerSecond=1
        )
        return started["TaskHandle"], dead

    def move(self) -> tuple[str, str]:
        dead, source = self.dead_letters()
        call = {"source": dead, "destination": source, "per_second": 1}
        return self.broker.extended(ADMIN, "StartMove", call).json[0], dead


def redrive_policy(dead: str) -> str:
    return json.dumps({"deadLetterTargetArn": arn(dead), "maxReceiveCount": 3})


def policy(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def statement(queue: str, effect: str = "Allow", user: str = "bob", **more: Any) -> dict[str, Any]:
    made = {"Effect": effect, "Principal": {"AWS": user_arn(user)}, "Action": "sqs:*", "Resource": arn(queue)}
    return {**made, **more}


def on_queue(operation: AclOperation, **parameters: Any) -> Callable[[Scene], Sample]:
    def make(scene: Scene) -> Sample:
        queue = scene.made()
        return Sample({"QueueUrl": queue, **parameters}, [(operation, queue)])

    return make


def by_receipt(scene: Scene, *, in_batch: bool = False, **more: Any) -> Sample:
    entry = {"ReceiptHandle": scene.receipt(), **more}
    parameters = {"Entries": [{"Id": "a", **entry}]} if in_batch else entry
    return Sample({"QueueUrl": scene.queue, **parameters}, [(READ, scene.queue)])


def create_queue(scene: Scene) -> Sample:
    dead = scene.made("-dead")
    given = {"RedrivePolicy": redrive_policy(dead), " Policy ": policy(statement(scene.queue))}
    grants = [(CREATE, scene.queue), (ALTER, scene.queue), (WRITE, dead)]
    return Sample({"QueueName": scene.queue, "Attributes": given}, grants)


def set_attributes(scene: Scene) -> Sample:
    queue, dead = scene.made(), scene.made("-dead")
    given = {" Policy": policy(statement(queue, user="carol")), "RedrivePolicy": redrive_policy(dead)}
    return Sample({"QueueUrl": queue, "Attributes": given}, [(ALTER_CONFIGS, queue), (ALTER, queue), (WRITE, dead)])


def list_queues(scene: Scene) -> Sample:
    queue = scene.made()
    return Sample({"QueueNamePrefix": queue}, [(DESCRIBE, queue)])


def list_sources(scene: Scene) -> Sample:
    dead, source = scene.dead_letters()
    return Sample({"QueueUrl": dead}, [(DESCRIBE, dead), (DESCRIBE, source)])


def start_task(scene: Scene) -> Sample:
    dead, source = scene.dead_letters()
    return Sample({"SourceArn": arn(dead)}, [(READ, dead), (WRITE, source)])


def cancel_task(scene: Scene) -> Sample:
    handle, dead = scene.task()
    return Sample({"TaskHandle": handle}, [(READ, dead)])


def list_tasks(scene: Scene) -> Sample:
    queue = scene.made()
    return Sample({"SourceArn": arn(queue)}, [(DESCRIBE, queue)])


def add_permission(scene: Scene) -> Sample:
    given = {"Label": "a", "AWSAccountIds": [ACCOUNT], "Actions": ["SendMessage"]}
    return Sample({"QueueUrl": scene.made(), **given}, [(ALTER, scene.queue)])


def remove_permission(scene: Scene) -> Sample:
    sample = add_permission(scene)
    scene.broker.as_admin("AddPermission", **sample.parameters)
    return Sample({"QueueUrl": scene.queue, "Label": "a"}, sample.grants)


def by_name(scene: Scene) -> Sample:
    return Sample({"QueueName": scene.made()}, [(DESCRIBE, scene.queue)])


SAMPLES: dict[str, Callable[[Scene], Sample]] = {
    "AddPermission": add_permission,
    "CancelMessageMoveTask": cancel_task,
    "ChangeMessageVisibility": lambda scene: by_receipt(scene, VisibilityTimeout=5),
    "ChangeMessageVisibilityBatch": lambda scene: by_receipt(scene, in_batch=True, VisibilityTimeout=5),
    "CreateQueue": create_queue,
    "DeleteMessage": by_receipt,
    "DeleteMessageBatch": lambda scene: by_receipt(scene, in_batch=True),
    "DeleteQueue": on_queue(DELETE),
    "GetQueueAttributes": on_queue(DESCRIBE, AttributeNames=["All"]),
    "GetQueueUrl": by_name,
    "ListDeadLetterSourceQueues": list_sources,
    "ListMessageMoveTasks": list_tasks,
    "ListQueueTags": on_queue(DESCRIBE),
    "ListQueues": list_queues,
    "PurgeQueue": on_queue(DELETE),
    "ReceiveMessage": on_queue(READ),
    "RemovePermission": remove_permission,
    "SendMessage": on_queue(WRITE, MessageBody="hello"),
    "SendMessageBatch": on_queue(WRITE, Entries=[{"Id": "a", "MessageBody": "hello"}]),
    "SetQueueAttributes": set_attributes,
    "StartMessageMoveTask": start_task,
    "TagQueue": on_queue(ALTER_CONFIGS, Tags={"team": "orders"}),
    "UntagQueue": on_queue(ALTER_CONFIGS, TagKeys=["team"]),
}
HIDING = frozenset({"ListQueues", "ListDeadLetterSourceQueues"})
"""Actions that leave out what the client may not see."""


def asked(operation: AclOperation, **parameters: Any) -> Callable[[Scene], Sample]:
    return lambda scene: Sample({"queue": scene.made(), **parameters}, [(operation, scene.queue)])


def asked_about_receipt(member: str, value: Callable[[str], Any]) -> Callable[[Scene], Sample]:
    return lambda scene: Sample({"queue": scene.queue, member: [value(scene.receipt())]}, [(READ, scene.queue)])


def create_call(scene: Scene) -> Sample:
    dead = scene.made("-dead")
    return Sample(
        {"queue": scene.queue, "settings": {"dead.letter": dead, "max.receives": "3", "attributes": "{}"}},
        [(CREATE, scene.queue), (ALTER, scene.queue), (WRITE, dead)],
    )


def alter_call(scene: Scene) -> Sample:
    queue, dead = scene.made(), scene.made("-dead")
    settings = {"dead.letter": dead, "attributes": "{}"}
    return Sample({"queue": queue, "settings": settings}, [(ALTER_CONFIGS, queue), (ALTER, queue), (WRITE, dead)])


def list_call(scene: Scene) -> Sample:
    return Sample({"prefix": scene.made()}, [(DESCRIBE, scene.queue)])


def start_call(scene: Scene) -> Sample:
    dead, source = scene.dead_letters()
    return Sample({"source": dead, "destination": source}, [(READ, dead), (WRITE, source)])


def cancel_call(scene: Scene) -> Sample:
    move_id, dead = scene.move()
    return Sample({"move_id": move_id}, [(READ, dead)])


def moves_call(scene: Scene) -> Sample:
    return Sample({"source": scene.made()}, [(DESCRIBE, scene.queue)])


CALL_SAMPLES: dict[str, Callable[[Scene], Sample]] = {
    "Acknowledge": asked_about_receipt("receipts", str),
    "AlterQueue": alter_call,
    "CancelMove": cancel_call,
    "Count": asked(DESCRIBE),
    "CreateQueue": create_call,
    "DeleteQueue": asked(DELETE),
    "DescribeQueue": asked(DESCRIBE),
    "Extend": asked_about_receipt("wanted", lambda receipt: [receipt, 5000]),
    "GiveBack": asked_about_receipt("wanted", lambda receipt: [receipt, None, "why"]),
    "ListMoves": moves_call,
    "ListQueues": list_call,
    "Peek": asked(READ),
    "Purge": asked(DELETE),
    "Receive": asked(READ, wait_ms=0),
    "Send": asked(WRITE, messages=[["aGVsbG8=", "id-1"]]),
    "StartMove": start_call,
}


def test_every_action_and_call_is_in_the_matrix() -> None:
    assert SAMPLES.keys() == ACTIONS.keys()
    assert CALL_SAMPLES.keys() == {call.__name__ for call in CALLS}


Ask = Callable[[Key | None, str, dict[str, Any]], SignedAnswer]


def _matrix(ask: Ask, name: str, sample: Sample, needs: tuple[QueueNeed, ...], broker: SecuredBroker, bob: Key) -> None:
    assert {operation for operation, _ in sample.grants} == {need.operation for need in needs}
    parameters = sample.parameters
    assert outcome(ask(None, name, parameters)) == MISSING
    assert outcome(ask(Key(bob.id, "wrong"), name, parameters)) == WRONG
    assert outcome(ask(Key("nobody", bob.secret), name, parameters)) == UNKNOWN
    for grant in sample.grants:
        broker.allow("bob", *grant)
    for operation, queue in sample.grants:
        broker.revoke("bob", operation, queue)
        answer = ask(bob, name, parameters)
        if name in HIDING and (operation, queue) == sample.grants[-1]:
            assert answer.status == 200
            assert f"/{queue}".encode() not in answer.body
            assert f'"{queue}"'.encode() not in answer.body
        else:
            assert outcome(answer) == DENIED
        broker.allow("bob", operation, queue)
    answer = ask(bob, name, parameters)
    assert outcome(answer) == (200, ""), answer
    if name in HIDING:
        assert sample.grants[-1][1].encode() in answer.body


@pytest.mark.parametrize("protocol", ["json", "query"])
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_who_may_call_an_action(name: str, protocol: str, broker: SecuredBroker, bob: Key) -> None:
    sample = SAMPLES[name](Scene(broker, f"{name}-{protocol}"))
    ask = broker.json if protocol == "json" else broker.query
    _matrix(ask, name, sample, ACTIONS[name].needs, broker, bob)


@pytest.mark.parametrize("name", sorted(CALL_SAMPLES))
def test_who_may_make_a_call_of_the_sdk(name: str, broker: SecuredBroker, bob: Key) -> None:
    sample = CALL_SAMPLES[name](Scene(broker, f"{name}-call"))
    (found,) = [each for call, each in CALLS.items() if call.__name__ == name]
    _matrix(broker.extended, name, sample, found.needs, broker, bob)


# -- what a client cannot see


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - HIDING - {"CreateQueue", "CancelMessageMoveTask"}))
def test_a_forbidden_queue_looks_like_one_that_does_not_exist(name: str, broker: SecuredBroker, bob: Key) -> None:
    queue = f"{name}-hidden"
    parameters = SAMPLES[name](Scene(broker, queue)).parameters
    broker.as_admin("SetQueueAttributes", QueueUrl=queue, Attributes={"Policy": policy(statement(queue, "Deny"))})
    hidden = broker.json(bob, name, parameters)
    absent = broker.json(bob, name, json.loads(json.dumps(parameters).replace(queue, f"{name}-absent")))
    assert outcome(hidden) == DENIED
    assert absent.body == hidden.body.replace(queue.encode(), f"{name}-absent".encode())


def test_a_task_without_a_destination_names_no_queue_that_is_hidden(broker: SecuredBroker, bob: Key) -> None:
    dead, source = Scene(broker, "unnamed").dead_letters()
    broker.allow("bob", READ, dead)
    answer = broker.json(bob, "StartMessageMoveTask", {"SourceArn": arn(dead)})
    assert outcome(answer) == DENIED
    assert f"{source} ".encode() not in answer.body


# -- policies


def test_a_policy_lets_in_a_user_without_acl(broker: SecuredBroker, bob: Key) -> None:
    queue = Scene(broker, "shared").made(Policy=policy(statement("shared", Action="sqs:SendMessage")))
    send = {"QueueUrl": queue, "MessageBody": "hello"}
    assert outcome(broker.json(bob, "SendMessage", send)) == (200, "")
    batch = {"QueueUrl": queue, "Entries": [{"Id": "a", "MessageBody": "hello"}]}
    assert outcome(broker.json(bob, "SendMessageBatch", batch)) == (200, "")
    assert outcome(broker.extended(bob, "Send", {"queue": queue, "messages": [["aGk=", "1"]]})) == (200, "")
    assert outcome(broker.json(bob, "ReceiveMessage", {"QueueUrl": queue})) == DENIED
    broker.deny("bob", WRITE, queue)
    refused = broker.json(bob, "SendMessage", send)
    assert outcome(refused) == DENIED
    assert b"explicit deny in an identity-based policy" in refused.body


def test_a_denial_in_a_policy_wins_over_an_acl(broker: SecuredBroker, bob: Key) -> None:
    queue = Scene(broker, "closed").made()
    broker.allow("bob", READ, queue)
    receive = {"QueueUrl": queue}
    assert outcome(broker.json(bob, "ReceiveMessage", receive)) == (200, "")
    text = policy(statement(queue), statement(queue, "Deny", Action="sqs:Receive*"))
    broker.as_admin("SetQueueAttributes", QueueUrl=queue, Attributes={"Policy": text})
    answer = broker.json(bob, "ReceiveMessage", receive)
    assert outcome(answer) == DENIED
    assert answer.json["message"] == (
        f"User: {user_arn('bob')} is not authorized to perform: sqs:receivemessage on resource: {arn(queue)} "
        "with an explicit deny in a resource-based policy"
    )
    for call in ("Receive", "Peek"):
        refused = broker.extended(bob, call, {"queue": queue})
        assert outcome(refused) == DENIED
        assert refused.json["message"] == f"User:bob may not read the queue {queue}: the policy of the queue denies it"


def test_permission_for_the_account_leaves_the_decision_to_acls(broker: SecuredBroker, bob: Key) -> None:
    queue = Scene(broker, "delegated").made()
    add = {"QueueUrl": queue, "Actions": ["*"]}
    broker.as_admin("AddPermission", AWSAccountIds=[ACCOUNT], Label="all", **add)
    assert outcome(broker.json(bob, "ReceiveMessage", {"QueueUrl": queue})) == DENIED
    broker.as_admin("AddPermission", AWSAccountIds=[user_arn("bob")], Label="bob", **add)
    assert outcome(broker.json(bob, "ReceiveMessage", {"QueueUrl": queue})) == (200, "")
    broker.as_admin("RemovePermission", QueueUrl=queue, Label="bob")
    assert outcome(broker.json(bob, "ReceiveMessage", {"QueueUrl": queue})) == DENIED


def test_a_policy_that_locks_everybody_out_can_be_repaired(broker: SecuredBroker) -> None:
    queue = Scene(broker, "locked").made(Policy=policy(statement("locked", "Deny", Principal="*")))
    assert outcome(broker.json(ADMIN, "ReceiveMessage", {"QueueUrl": queue})) == DENIED
    assert "Policy" in broker.as_admin("GetQueueAttributes", QueueUrl=queue, AttributeNames=["All"])["Attributes"]
    broker.as_admin("SetQueueAttributes", QueueUrl=queue, Attributes={"Policy": ""})
    broker.as_admin("ReceiveMessage", QueueUrl=queue)


@pytest.mark.parametrize(
    ("condition", "is_denied"),
    [
        ({"Bool": {"aws:SecureTransport": "false"}}, True),
        ({"IpAddress": {"aws:SourceIp": "127.0.0.0/8"}}, True),
        ({"NotIpAddress": {"aws:SourceIp": "127.0.0.0/8"}}, False),
        ({"StringEquals": {"aws:username": "bob"}}, True),
        ({"ArnNotEquals": {"aws:PrincipalArn": user_arn("bob")}}, False),
        ({"StringEquals": {"aws:ResourceTag/Stage": "live"}}, True),
        ({"StringEquals": {"aws:ResourceTag/Stage": "test"}}, False),
        ({"DateGreaterThan": {"aws:CurrentTime": "2020-01-01T00:00:00Z"}}, True),
        ({"DateLessThan": {"aws:EpochTime": "1577836800"}}, False),
    ],
)
def test_conditions_see_the_request(condition: Any, is_denied: bool, broker: SecuredBroker, bob: Key) -> None:
    queue = "conditional"
    broker.as_admin("CreateQueue", QueueName=queue)
    broker.as_admin("TagQueue", QueueUrl=queue, Tags={"Stage": "live"})
    denied = statement(queue, "Deny", Principal="*", Action="sqs:ReceiveMessage", Condition=condition)
    text = policy(statement(queue), denied)
    broker.as_admin("SetQueueAttributes", QueueUrl=queue, Attributes={"Policy": text})
    answer = broker.json(bob, "ReceiveMessage", {"QueueUrl": queue})
    assert outcome(answer) == (DENIED if is_denied else (200, ""))


# -- keys and users


def test_create_on_the_cluster_is_enough(broker: SecuredBroker) -> None:
    carol = broker.user("carol")
    create = {"QueueName": "carols"}
    assert outcome(broker.json(carol, "CreateQueue", create)) == DENIED
    broker.allow("carol", CREATE, CLUSTER_NAME)
    assert outcome(broker.json(carol, "CreateQueue", create)) == (200, "")
    assert outcome(broker.json(carol, "DeleteQueue", {"QueueUrl": "carols"})) == DENIED


def test_keys_are_rotated_without_a_restart(broker: SecuredBroker) -> None:
    first = broker.user("dave")
    queue = Scene(broker, "rotated").made()
    broker.allow("dave", DESCRIBE, queue)
    ask = {"QueueName": queue}
    second = broker.user("dave", 2)
    assert [outcome(broker.json(key, "GetQueueUrl", ask)) for key in (first, second)] == [(200, "")] * 2
    broker.delete_key(first)
    assert outcome(broker.json(first, "GetQueueUrl", ask)) == UNKNOWN
    assert outcome(broker.json(second, "GetQueueUrl", ask)) == (200, "")
    broker.delete_user("dave")
    assert outcome(broker.json(second, "GetQueueUrl", ask)) == UNKNOWN


def test_a_message_has_the_user_as_its_sender(broker: SecuredBroker, bob: Key) -> None:
    queue = Scene(broker, "signed").made()
    broker.allow("bob", WRITE, queue)
    broker.allow("bob", READ, queue)
    broker.json(bob, "SendMessage", {"QueueUrl": queue, "MessageBody": "hello"})
    receive = {"QueueUrl": queue, "AttributeNames": ["SenderId"], "WaitTimeSeconds": 5}
    (message,) = broker.json(bob, "ReceiveMessage", receive).json["Messages"]
    assert message["Attributes"]["SenderId"] == "bob"


@pytest.mark.parametrize("by", ["acl", "policy", "key"])
def test_a_long_poll_ends_when_its_permission_does(by: str, broker: SecuredBroker) -> None:
    queue, user = Scene(broker, f"polled-{by}").made(), f"erin-{by}"
    key = broker.user(user)
    broker.allow(user, READ, queue)
    with ThreadPoolExecutor(1) as threads:
        started = monotonic()
        waiting = threads.submit(broker.json, key, "ReceiveMessage", {"QueueUrl": queue, "WaitTimeSeconds": 20})
        broker.wait_for_receives(1)
        if by == "acl":
            broker.revoke(user, READ, queue)
        elif by == "policy":
            denied = policy(statement(queue, "Deny", Principal="*"))
            broker.as_admin("SetQueueAttributes", QueueUrl=queue, Attributes={"Policy": denied})
        else:
            broker.delete_key(key)
        answer = waiting.result(30)
    assert (answer.status, answer.json) == (200, {})
    assert monotonic() - started < 15
    refused = broker.json(key, "ReceiveMessage", {"QueueUrl": queue})
    assert outcome(refused) == (UNKNOWN if by == "key" else DENIED)
