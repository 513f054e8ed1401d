"""Access control of queues without a broker: how ACLs and policies are combined, keys, and what the audit log gets."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config.broker import BrokerSettings
from headrace.model import sigv4
from headrace.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.model.image import SecurityImage
from headrace.model.users import AccessKey, User
from headrace.queues.api import QueueInfo
from headrace.security.denial import Denial
from headrace.security.security import Security
from headrace.security.subject import Subject
from headrace.sqs.access import Caller, QueueAccess, QueueAccessRequest
from headrace.sqs.access_keys import AccessKeys
from headrace.sqs.calls import ACTIONS, SqsRequest, action
from headrace.sqs.errors import SqsError
from headrace.sqs.extended import CALLS
from headrace.sqs.policy_evaluation import POLICY_ACTIONS, SINGLE_ACTIONS

from .asking import arn
from .fake import ACCOUNT, Answer, Client, run

ON = replace(BrokerSettings(), authorization_enable=True, super_users="User:admin")
SEND = AclOperation.WRITE


def rule(permission: Permission, operation: AclOperation = SEND, user: str = "bob") -> Acl:
    return Acl(ResourceType.TOPIC, PatternType.LITERAL, "work", f"User:{user}", "*", operation, permission)


def access(*acls: Acl, settings: BrokerSettings = ON) -> tuple[QueueAccess, Security]:
    security = Security()
    security.update(SecurityImage(acls=frozenset(acls)), settings)
    return QueueAccess(security, ACCOUNT, "us-east-1", lambda: 1_760_000_000_000), security


def queue(*effects: str) -> QueueInfo:
    statements = [{"Effect": each, "Principal": "*", "Action": "sqs:*", "Resource": arn("work")} for each in effects]
    attributes = {"Policy": json.dumps({"Version": "2012-10-17", "Statement": statements})} if effects else {}
    return QueueInfo("work", "id", None, attributes)  # type: ignore[arg-type]


def ask(found: QueueAccess, info: QueueInfo | None, user: str = "bob", action: str = "SendMessage") -> str:
    """Empty if it is allowed, else the reason."""
    caller = Caller(Subject(f"User:{user}", "10.0.0.1", "SigV4"))
    try:
        found.check(caller, QueueAccessRequest(action, SEND, (action,), "work", info))
    except SqsError as error:
        return str(error).partition(f"{arn('work')} ")[2]
    return ""


NOTHING = "because no identity-based policy allows the sqs:sendmessage action"
BY_ACL = "with an explicit deny in an identity-based policy"
BY_POLICY = "with an explicit deny in a resource-based policy"
ALLOW, DENY = rule(Permission.ALLOW), rule(Permission.DENY)


@pytest.mark.parametrize(
    ("acls", "info", "reason"),
    [
        ([], None, NOTHING),
        ([], queue(), NOTHING),
        ([ALLOW], None, ""),
        ([ALLOW], queue(), ""),
        ([], queue("Allow"), ""),
        ([ALLOW], queue("Allow"), ""),
        ([DENY], queue("Allow"), BY_ACL),
        ([ALLOW, DENY], queue("Allow"), BY_ACL),
        ([ALLOW], queue("Deny"), BY_POLICY),
        ([ALLOW], queue("Allow", "Deny"), BY_POLICY),
        # Without DESCRIBE the answer does not show that the queue has a policy.
        ([], queue("Deny"), NOTHING),
    ],
)
def test_acls_and_policy_together(acls: list[Acl], info: QueueInfo | None, reason: str) -> None:
    assert ask(access(*acls)[0], info) == reason


@given(
    st.lists(st.sampled_from([ALLOW, DENY]), max_size=2),
    st.lists(st.sampled_from(["Allow", "Deny"]), max_size=3),
)
def test_allowed_by_one_and_denied_by_none(acls: list[Acl], effects: list[str]) -> None:
    is_allowed = (ALLOW in acls or "Allow" in effects) and DENY not in acls and "Deny" not in effects
    assert (ask(access(*acls)[0], queue(*effects)) == "") == is_allowed


def test_a_policy_binds_super_users_but_for_its_repair() -> None:
    found, _ = access()
    assert ask(found, queue(), "admin") == ""
    assert ask(found, queue("Deny"), "admin") == BY_POLICY
    for repair in ("GetQueueAttributes", "GetQueueUrl", "RemovePermission", "SetQueueAttributes"):
        assert ask(found, queue("Deny"), "admin", repair) == ""
        assert ask(found, queue("Deny"), "bob", repair) != ""
    broken = QueueInfo("work", "id", None, {"Policy": "no json"})  # type: ignore[arg-type]
    assert ask(found, broken, "admin") == BY_POLICY
    assert ask(found, broken, "admin", "SetQueueAttributes") == ""


def test_without_authorization_everything_is_allowed() -> None:
    found, _ = access(DENY, settings=BrokerSettings())
    assert not found.is_enforced
    assert ask(found, queue("Deny")) == ""
    assert found.sees(Caller(Subject()), queue("Deny"))


def test_a_denial_is_reported_with_its_reason() -> None:
    found, security = access(ALLOW)
    seen: list[Denial] = []
    security.on_denied.append(seen.append)
    ask(found, queue("Deny"))
    ask(found, queue("Deny"), "eve")
    ask(found, queue(), "bob")
    assert [(each.subject.principal, each.action, each.operation, each.resource.name) for each in seen] == [
        ("User:bob", "SendMessage", SEND, "work"),
        ("User:eve", "SendMessage", SEND, "work"),
    ]
    # The client gets another reason, which does not show that there is a policy.
    assert [each.reason for each in seen] == ["the policy of the queue denies it"] * 2


def test_an_action_without_permissions_does_not_register() -> None:
    class Unguarded(msgspec.Struct): ...

    async def unguarded(call: SqsRequest, request: Unguarded) -> None: ...

    with pytest.raises(TypeError, match="needs"):
        action(Unguarded)(unguarded)  # type: ignore[call-arg]


def test_policies_know_every_action() -> None:
    assert {SINGLE_ACTIONS.get(name, name) for name in ACTIONS} == POLICY_ACTIONS


# -- keys


def keys(security: Security, *, is_open: bool = True, **configured: str) -> AccessKeys:
    return AccessKeys(configured, security, is_open=is_open)


def image(**owners: str) -> SecurityImage:
    """Access keys by their owners, all of which exist but `gone`."""
    found = {key_id: AccessKey(key_id, owner, f"secret of {key_id}", 0) for key_id, owner in owners.items()}
    return SecurityImage({name: User(name) for name in owners.values() if name != "gone"}, found)


def test_keys_of_users_and_of_the_setting() -> None:
    security = Security()
    found = keys(security, fixed="configured")
    assert (found.secret("fixed"), found.owner("fixed"), found.secret("AK1")) == ("configured", "fixed", None)
    security.update(image(AK1="alice", AK2="gone", fixed="alice"), BrokerSettings())
    assert (found.secret("AK1"), found.owner("AK1")) == ("secret of AK1", "alice")
    assert (found.secret("fixed"), found.owner("fixed")) == ("configured", "fixed")
    assert found.secret("AK2") is None
    security.update(image(), BrokerSettings())
    assert found.secret("AK1") is None


def test_when_requests_must_be_signed() -> None:
    security = Security()
    assert not keys(security).is_required
    assert keys(security, a="b").is_required
    # A listener that other machines reach stays closed, also when authorization is turned off.
    assert keys(security, is_open=False).is_required
    security.update(SecurityImage(), ON)
    assert keys(security).is_required
    security.update(SecurityImage(), BrokerSettings())
    assert not keys(security).is_required
    security.update(image(AK1="alice"), BrokerSettings())
    assert keys(security).is_required


def test_an_endpoint_follows_changes_of_keys_and_acls() -> None:
    async def test(client: Client) -> None:
        await client.queue()
        ask: Callable[[], Any] = lambda: signed(client, "AK1", "secret of AK1", "GetQueueUrl", QueueName="work")  # noqa: E731
        assert (await ask()).status == 200  # nothing is required
        client.security.update(image(AK1="bob"), ON)
        assert (await ask()).error[:2] == (403, "AccessDenied")
        acls = frozenset({rule(Permission.ALLOW, AclOperation.DESCRIBE)})
        client.security.update(replace(image(AK1="bob"), acls=acls), ON)
        assert (await ask()).status == 200
        client.security.update(replace(image(), acls=acls), ON)
        assert (await ask()).error[:2] == (403, "InvalidClientTokenId")

    run(test)


async def signed(client: Client, key_id: str, secret: str, action: str, **parameters: Any) -> Answer:
    body = json.dumps(parameters).encode()
    headers = {"Host": "queues.test:9324", "X-Amz-Target": f"AmazonSQS.{action}"}
    when = datetime.fromtimestamp(client.now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    added = sigv4.sign("POST", "/", headers, body, key_id=key_id, secret=secret, region="us-east-1", when=when)
    return await client.request("POST", "/", {**headers, **added}, body)


# -- the documentation


def documented() -> dict[str, str]:
    """The last cell by the first, of the tables of permissions."""
    text = (Path(__file__).parents[3] / "docs/compatibility.md").read_text()
    section = text.partition("\n### Permissions\n")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "| `" in line]
    return {first[0].strip("`"): first[-1] for first in cells}


def test_the_tables_of_permissions_are_those_of_the_code() -> None:
    expected = {name: "; ".join(map(str, found.needs)) for name, found in ACTIONS.items()}
    for call, known in CALLS.items():
        expected[f"Headrace.{call.__name__}"] = "; ".join(map(str, known.needs))
    found = documented()
    assert {name: found.get(name) for name in expected} == expected
