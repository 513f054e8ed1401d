"""AddPermission and RemovePermission: statements in the policy of a queue, each with a label of its own.

As in AWS, permission for an account grants nothing by itself: the account's own rules, here the ACLs, decide. Besides
account ids, which are all that AWS documents, a user of this account (`arn:aws:iam::ACCOUNT:user/NAME`) is accepted.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.queues.api import QueueEdit, QueueInfo
from headrace.sqs import access_policy, errors
from headrace.sqs.attributes import MODIFIED, POLICY
from headrace.sqs.calls import SqsRequest, action, required
from headrace.sqs.needs import ALTER_QUEUE
from headrace.sqs.policy_evaluation import is_principal, user_arn

_ALLOWED = frozenset(
    {
        "*",
        "ChangeMessageVisibility",
        "DeleteMessage",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ListDeadLetterSourceQueues",
        "PurgeQueue",
        "ReceiveMessage",
        "SendMessage",
    }
)
_OWNER_ONLY = frozenset(
    {
        "AddPermission",
        "CancelMessageMoveTask",
        "CreateQueue",
        "DeleteQueue",
        "ListMessageMoveTasks",
        "ListQueueTags",
        "ListQueues",
        "RemovePermission",
        "SetQueueAttributes",
        "StartMessageMoveTask",
        "TagQueue",
        "UntagQueue",
    }
)
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ACCOUNT = re.compile(r"[0-9]{12}")
_SHOWN_LENGTH = 100
"""How much of a wrong value is sent back."""


class AddPermission(msgspec.Struct):
    QueueUrl: str | None = None
    Label: str | None = None
    AWSAccountIds: list[str] | None = None
    Actions: list[str] | None = None


@action(AddPermission, needs=(ALTER_QUEUE,))
async def add_permission(call: SqsRequest, request: AddPermission) -> None:
    info = call.find(request.QueueUrl)
    label = required(request.Label, "Label")
    if _LABEL.fullmatch(label) is None:
        raise errors.invalid_value(
            label[:_SHOWN_LENGTH],
            "Label",
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
        )
    actions, accounts = request.Actions or [], request.AWSAccountIds or []
    _check_actions(actions)
    principals = _principals(call, accounts)
    arn = call.realm.arn(info.name)
    policy = _policy(info) or {"Version": "2008-10-17", "Id": f"{arn}/SQSDefaultPolicy", "Statement": []}
    statements = access_policy.statements_of(policy)
    statement = {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": _one_or_all(principals)},
        "Action": _one_or_all([f"SQS:{name}" for name in actions]),
        "Resource": arn,
    }
    if statement in statements:
        return
    if any(each.get("Sid") == label for each in statements):
        raise errors.invalid_value(label, "Label", "Already exists.")
    if len(statements) >= access_policy.MOST_STATEMENTS:
        raise errors.over_limit(
            f"{len(statements) + 1} Statements were found, maximum allowed is {access_policy.MOST_STATEMENTS}."
        )
    await _keep(call, info, {**policy, "Statement": [*statements, statement]})


def _check_actions(actions: Sequence[str]) -> None:
    if not actions:
        raise errors.missing_parameter("Actions")
    if len(actions) > access_policy.MOST_ACTIONS:
        raise errors.over_limit(f"{len(actions)} Actions were found, maximum allowed is {access_policy.MOST_ACTIONS}.")
    for name in actions:
        if name not in _ALLOWED:
            reason = "Please refer to the appropriate WSDL for a list of valid actions."
            if name in _OWNER_ONLY:
                reason = "Only the queue owner is allowed to invoke this action."
            raise errors.invalid_value(f"SQS:{name[:_SHOWN_LENGTH]}", "ActionName", reason)


def _principals(call: SqsRequest, names: Sequence[str]) -> list[str]:
    """The ARNs of accounts, and of users of this account."""
    users = user_arn(call.realm.account, "")
    found, wrong = [], []
    for name in names:
        if _ACCOUNT.fullmatch(name):
            found.append(f"arn:aws:iam::{name}:root")
        elif name.startswith(users) and is_principal(name):
            found.append(name)
        else:
            wrong.append(name)
    if wrong or not names:
        shown = ", ".join(wrong)[:_SHOWN_LENGTH]
        raise errors.invalid_value(f"[{shown}]", "PrincipalId", "Unable to verify.")
    return found


def _one_or_all(texts: list[str]) -> str | list[str]:
    return texts if len(texts) > 1 else texts[0]


class RemovePermission(msgspec.Struct):
    QueueUrl: str | None = None
    Label: str | None = None


@action(RemovePermission, needs=(ALTER_QUEUE,))
async def remove_permission(call: SqsRequest, request: RemovePermission) -> None:
    info = call.find(request.QueueUrl)
    label = required(request.Label, "Label")
    policy = _policy(info)
    statements = access_policy.statements_of(policy)
    left = [each for each in statements if each.get("Sid") != label]
    if len(left) == len(statements):
        reason = "can't find label on existing policy." if policy else "can't find label."
        raise errors.invalid_value(label[:_SHOWN_LENGTH], "Label", reason)
    await _keep(call, info, {**policy, "Statement": left})


def _policy(info: QueueInfo) -> dict[str, Any]:
    return access_policy.load(info.attributes.get(POLICY, "{}"))


async def _keep(call: SqsRequest, info: QueueInfo, policy: dict[str, Any]) -> None:
    text = json.dumps(policy, separators=(",", ":")) if policy["Statement"] else None
    if text is not None:
        access_policy.check_size(text)
    stored = {POLICY: text, MODIFIED: str(call.realm.wall_ms() // 1000)}
    # Not the policy that another client has changed since: its permission would be lost.
    await call.queues.alter(info.name, QueueEdit({}, stored, expected={POLICY: info.attributes.get(POLICY)}))
