"""AddPermission and RemovePermission: statements in the policy of a queue, each with a label of its own.

The policy is kept and shown. It decides nothing here: who has one of `sqs.access.keys` may do everything.
"""

import json
import re
from typing import Any

import msgspec

from headrace.queues.api import Edit, QueueInfo
from headrace.sqs import errors
from headrace.sqs.attributes import MODIFIED, POLICY
from headrace.sqs.calls import Call, action, required

_MOST_ACTIONS = 7
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
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}")


class AddPermission(msgspec.Struct):
    QueueUrl: str | None = None
    Label: str | None = None
    AWSAccountIds: list[str] | None = None
    Actions: list[str] | None = None


@action(AddPermission)
async def add_permission(call: Call, request: AddPermission) -> None:
    info = call.find(request.QueueUrl)
    label = required(request.Label, "Label")
    if _LABEL.fullmatch(label) is None:
        raise errors.invalid_value(label, "Label", "Can only include alphanumeric characters, hyphens, or underscores.")
    actions, accounts = request.Actions or [], request.AWSAccountIds or []
    if not actions:
        raise errors.missing_parameter("Actions")
    if not accounts:
        raise errors.invalid_value("[]", "PrincipalId", "Unable to verify.")
    if len(actions) > _MOST_ACTIONS:
        raise errors.over_limit(f"{len(actions)} Actions were found, maximum allowed is {_MOST_ACTIONS}.")
    for name in actions:
        if name not in _ALLOWED:
            raise errors.invalid_value(
                f"SQS:{name}", "ActionName", "Only the queue owner is allowed to invoke this action."
            )
    arn = call.realm.arn(info.name)
    policy = _policy(info) or {"Version": "2012-10-17", "Id": f"{arn}/SQSDefaultPolicy", "Statement": []}
    statements = _statements(policy)
    if any(each.get("Sid") == label for each in statements):
        raise errors.invalid_value(label, "Label", "Already exists.")
    principals = [f"arn:aws:iam::{account}:root" for account in accounts]
    names = [f"SQS:{name}" for name in actions]
    statement = {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": principals if len(principals) > 1 else principals[0]},
        "Action": names if len(names) > 1 else names[0],
        "Resource": arn,
    }
    await _keep(call, info, {**policy, "Statement": [*statements, statement]})


class RemovePermission(msgspec.Struct):
    QueueUrl: str | None = None
    Label: str | None = None


@action(RemovePermission)
async def remove_permission(call: Call, request: RemovePermission) -> None:
    info = call.find(request.QueueUrl)
    label = required(request.Label, "Label")
    policy = _policy(info)
    statements = _statements(policy)
    left = [each for each in statements if each.get("Sid") != label]
    if len(left) == len(statements):
        raise errors.invalid_value(label, "Label", "can't find label on existing policy.")
    await _keep(call, info, {**policy, "Statement": left})


def _policy(info: QueueInfo) -> dict[str, Any]:
    found = json.loads(info.attributes.get(POLICY, "{}"))
    return found if isinstance(found, dict) else {}


def _statements(policy: dict[str, Any]) -> list[dict[str, Any]]:
    found = policy.get("Statement", [])
    return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict)]


async def _keep(call: Call, info: QueueInfo, policy: dict[str, Any]) -> None:
    text = json.dumps(policy) if policy["Statement"] else None
    await call.queues.alter(info.name, Edit({}, {POLICY: text, MODIFIED: str(call.realm.wall_ms() // 1000)}))
