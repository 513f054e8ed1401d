"""RedrivePolicy and RedriveAllowPolicy: which queue the dead letters of a queue go to, and which queues allow it.

A redrive policy is the settings `queue.dead.letter` and `queue.max.receives`. AWS lets a queue that exists be its own
dead-letter queue. Its messages would move from the queue to itself: here such a policy is only stored and shown, and
the messages stay where they are.
"""

import json
from typing import Any, NamedTuple

from headrace.model.errors import UnknownQueue
from headrace.queues.api import QueueInfo
from headrace.sqs import errors
from headrace.sqs.arns import parse_arn
from headrace.sqs.calls import Realm

POLICY = "RedrivePolicy"
ALLOW_POLICY = "RedriveAllowPolicy"
_TARGET = "deadLetterTargetArn"
_COUNT = "maxReceiveCount"
_MOST_RECEIVES = 1000
_MOST_SOURCES = 10
_MOST_CHARACTERS = 8_192
_NOT_JSON = "Redrive policy is not a valid JSON map."
# AWS's sentence has a typographic apostrophe.
_NOT_SUPPORTED = "Amazon SQS can't create the redrive allow policy, as it\u2019s in an unsupported format."


class RedrivePolicy(NamedTuple):
    """A parsed redrive policy."""

    target: str
    max_receives: int


def parse_policy(realm: Realm, queue: str, value: str, is_fifo: bool) -> RedrivePolicy | None:
    """None for an empty policy, which removes the one that a queue has."""
    if not value:
        return None
    policy = _json_map(value)
    if policy is None:
        raise errors.invalid_attribute_value(POLICY, _NOT_JSON)
    for name in (_COUNT, _TARGET):
        if name not in policy:
            raise _refused(value, f"Redrive policy does not contain mandatory attribute: {name}.")
    if len(policy) > 2:
        raise _refused(value, f"Only following attributes are supported: [{_TARGET}, {_COUNT}].")
    count = _count(policy[_COUNT])
    if count is None:
        raise _refused(
            value,
            f"Invalid value for {_COUNT}: {_readable(policy[_COUNT])}, valid values are from 1 to {_MOST_RECEIVES} "
            "both inclusive.",
        )
    target = _target(realm, policy[_TARGET], value)
    if target.settings.is_fifo != is_fifo:
        # AWS ends this sentence with two full stops.
        raise _refused(value, "Dead-letter queue must be same type of queue as the source..")
    if not _allows(target, realm.arn(queue)):
        arn = realm.arn(target.name)
        raise _refused(value, f"Queue {arn} does not allow this queue to use it as a dead-letter queue.")
    return RedrivePolicy(target.name, count)


def target_named(value: str) -> str | None:
    """The name of the dead-letter queue in a redrive policy; None if it has none."""
    arn = (_json_map(value) or {}).get(_TARGET)
    parsed = parse_arn(arn) if isinstance(arn, str) else None
    return None if parsed is None else parsed.resource


def _count(value: object) -> int | None:
    """A number, or a text of digits; None for one out of range."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
        value = int(value)
    return value if type(value) is int and 1 <= value <= _MOST_RECEIVES else None


def _target(realm: Realm, arn: object, value: str) -> QueueInfo:
    """The dead-letter queue."""
    if not isinstance(arn, str):
        raise _refused(value, f"Invalid value for {_TARGET}.")
    parsed = parse_arn(arn)
    if parsed is None:
        raise _refused(value, "Dead-letter target ARN should be fully qualified ARN.")
    if parsed.service != "sqs":
        raise _refused(value, f"Only SQS queues are valid resources for {_TARGET}.")
    if parsed.region != realm.region:
        raise _refused(value, "Dead-letter target must be in same region as the source.")
    if parsed.account != realm.account:
        raise _refused(value, "Dead-letter target owner should be same as the source.")
    try:
        return realm.queues.find(parsed.resource)
    except UnknownQueue:
        raise _refused(value, "Dead letter target does not exist.") from None


def _refused(value: str, reason: str, attribute: str = POLICY) -> errors.SqsError:
    return errors.invalid_value(value, attribute, reason)


def _readable(value: object) -> str:
    """A JSON value as a short text that can be sent back."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:100].encode("utf-8", "replace").decode()


def _json_map(text: str) -> dict[str, Any] | None:
    if len(text) > _MOST_CHARACTERS:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# -- which queues allow it


def check_allow_policy(value: str) -> None:
    policy = _json_map(value) or {}
    permission, sources = policy.get("redrivePermission"), policy.get("sourceQueueArns")
    is_supported = permission in ("allowAll", "denyAll", "byQueue") and policy.keys() <= {
        "redrivePermission",
        "sourceQueueArns",
    }
    if not is_supported or not _are_texts(sources):
        raise errors.invalid_attribute_value(ALLOW_POLICY, _NOT_SUPPORTED)
    if permission != "byQueue" and sources is not None:
        raise _not_created(
            value, "To specify one or more source queue ARNs, you must set redrivePermission to byQueue."
        )
    if permission == "byQueue" and not sources:
        raise _not_created(
            value,
            "When you specify the byQueue permission type, you must also specify one or more sourceQueueArns values.",
        )
    if sources is not None and len(sources) > _MOST_SOURCES:
        raise _not_created(value, f"The maximum number of source queue ARNs you can specify is {_MOST_SOURCES}.")


def _are_texts(sources: object) -> bool:
    return sources is None or (isinstance(sources, list) and all(isinstance(each, str) for each in sources))


def _not_created(value: str, reason: str) -> errors.SqsError:
    return _refused(value, f"Amazon SQS can't create the redrive allow policy. {reason}", ALLOW_POLICY)


def _allows(target: QueueInfo, source_arn: str) -> bool:
    policy = _json_map(target.attributes.get(ALLOW_POLICY, ""))
    if policy is None or policy.get("redrivePermission") == "allowAll":
        return True
    if policy.get("redrivePermission") == "denyAll":
        return False
    sources = policy.get("sourceQueueArns")
    return isinstance(sources, list) and source_arn in sources


# -- what a queue has


def policy_of(info: QueueInfo) -> RedrivePolicy | None:
    settings = info.settings
    if settings.dead_letter and settings.max_receives:
        return RedrivePolicy(settings.dead_letter, settings.max_receives)
    count = info.attributes.get(POLICY, "")
    own = _count(count)
    return None if own is None else RedrivePolicy(info.name, own)


def changes(queue: str, redrive: RedrivePolicy | None) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """The settings and the stored attributes of a queue with this policy."""
    if redrive is None:
        return {"dead.letter": None, "max.receives": None}, {POLICY: None}
    count = str(redrive.max_receives)
    if redrive.target == queue:
        return {"dead.letter": None, "max.receives": None}, {POLICY: count}
    return {"dead.letter": redrive.target, "max.receives": count}, {POLICY: None}


def comparable(text: str) -> tuple[object, int | None]:
    """A policy in a form in which equal ones are equal, however they are written."""
    policy = _json_map(text) or {}
    return policy.get(_TARGET), _count(policy.get(_COUNT))


def show(realm: Realm, redrive: RedrivePolicy) -> str:
    policy = {_TARGET: realm.arn(redrive.target), _COUNT: redrive.max_receives}
    return json.dumps(policy, separators=(",", ":"))
