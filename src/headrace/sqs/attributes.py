"""The attributes of a queue in the SQS API, and what they are here: settings of the queue (`queue.*`), or kept as they
came in `queue.attributes`.

Kept and shown without effect: `Policy` (who may is decided by `sqs.access.keys`), `FifoThroughputLimit` (nothing is
limited), and `Kms*` and `SqsManagedSseEnabled` (nothing is encrypted by the broker: encrypt the disk).
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from headrace.model.errors import UnknownQueue
from headrace.queues.api import Counts, QueueInfo
from headrace.sqs import errors
from headrace.sqs.calls import Realm

ALL = "All"
CREATED = "CreatedTimestamp"
MODIFIED = "LastModifiedTimestamp"
POLICY = "Policy"
REDRIVE_POLICY = "RedrivePolicy"
REDRIVE_ALLOW_POLICY = "RedriveAllowPolicy"
FIFO_SUFFIX = ".fifo"
TAG_PREFIX = "tag:"
COUNTS = {
    "ApproximateNumberOfMessages": "available",
    "ApproximateNumberOfMessagesNotVisible": "in_flight",
    "ApproximateNumberOfMessagesDelayed": "delayed",
}
_MOST_SOURCES = 10


class _Number(NamedTuple):
    setting: str
    low: int
    high: int
    factor: int


_NUMBERS = {
    "VisibilityTimeout": _Number("visibility.timeout.ms", 0, 43_200, 1000),
    "MaximumMessageSize": _Number("max.message.bytes", 1024, 1_048_576, 1),
    "MessageRetentionPeriod": _Number("retention.ms", 60, 1_209_600, 1000),
    "DelaySeconds": _Number("delay.ms", 0, 900, 1000),
    "ReceiveMessageWaitTimeSeconds": _Number("receive.wait.ms", 0, 20, 1000),
}
_FIFO_ONLY = frozenset({"ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit"})
_CHOICES = {
    "FifoQueue": ("true", "false"),
    "ContentBasedDeduplication": ("true", "false"),
    "SqsManagedSseEnabled": ("true", "false"),
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}
_SETTINGS = {"ContentBasedDeduplication": "dedupe.by.content", "DeduplicationScope": "dedupe.scope"}
_KEPT = ("FifoThroughputLimit", "KmsDataKeyReusePeriodSeconds", "KmsMasterKeyId", POLICY, "SqsManagedSseEnabled")
_READ_ONLY = frozenset({*COUNTS, CREATED, MODIFIED, "QueueArn"})
KNOWN = frozenset({*_NUMBERS, *_CHOICES, *_KEPT, *_READ_ONLY, REDRIVE_POLICY, REDRIVE_ALLOW_POLICY})


class Change(NamedTuple):
    settings: dict[str, str | None]
    kept: dict[str, str | None]


def parse(realm: Realm, queue: str, given: Mapping[str, str]) -> Change:
    """What attributes that somebody sets change of a queue, which need not exist yet. `FifoQueue` is left to others."""
    settings: dict[str, str | None] = {}
    kept: dict[str, str | None] = {}
    is_fifo = queue.endswith(FIFO_SUFFIX)
    for name, value in given.items():
        if name not in KNOWN or name in _READ_ONLY:
            raise errors.invalid_attribute_name(name)
        if name in _FIFO_ONLY and not is_fifo:
            raise errors.invalid_attribute_name(name)
        if name in _CHOICES and value not in _CHOICES[name]:
            raise errors.invalid_attribute_value(name)
        if name in _NUMBERS:
            row = _NUMBERS[name]
            settings[row.setting] = str(_number(name, value, row.low, row.high) * row.factor)
        elif name == REDRIVE_POLICY:
            settings["dead.letter"], settings["max.receives"] = _redrive_policy(realm, queue, value)
        elif name == REDRIVE_ALLOW_POLICY:
            kept[name] = _redrive_allow_policy(value)
        elif name in _SETTINGS:
            settings[_SETTINGS[name]] = value
        elif name in _KEPT:
            kept[name] = _checked(name, value)
    return Change(settings, kept)


def _number(name: str, value: str, low: int, high: int) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > 10 or not low <= int(value) <= high:
        raise errors.invalid_attribute_value(name)
    return int(value)


def _checked(name: str, value: str) -> str | None:
    if value and name == "KmsDataKeyReusePeriodSeconds":
        _number(name, value, 60, 86_400)
    if value and name == POLICY and not isinstance(_json(value), dict):
        raise errors.invalid_attribute_value(name)
    return value or None


def _json(text: str) -> Any:
    """None for what is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _redrive_policy(realm: Realm, queue: str, value: str) -> tuple[str | None, str | None]:
    """The dead-letter queue, and after how many receives a message goes there; nothing for an empty policy."""
    if not value:
        return None, None

    def wrong(reason: str) -> errors.SqsError:
        return errors.invalid_value(value, REDRIVE_POLICY, reason)

    policy = _json(value)
    if not isinstance(policy, dict):
        raise wrong("Redrive policy is not a valid JSON map.")
    for name in ("deadLetterTargetArn", "maxReceiveCount"):
        if name not in policy:
            raise wrong(f"Redrive policy does not contain mandatory attribute: {name}.")
    most = policy["maxReceiveCount"]
    most = int(most) if isinstance(most, str) and most.isascii() and most.isdigit() and len(most) < 10 else most
    if type(most) is not int or not 1 <= most <= 1000:
        raise wrong(
            f"Invalid value for maxReceiveCount: {policy['maxReceiveCount']}, valid values are from 1 to 1000 both "
            "inclusive."
        )
    target = realm.queue_of_arn(str(policy["deadLetterTargetArn"]))
    try:
        letters = realm.queues.find(target)
    except UnknownQueue:
        raise wrong("Dead letter target does not exist.") from None
    if letters.settings.is_fifo != queue.endswith(FIFO_SUFFIX):
        raise wrong("Dead-letter queue must be same type of queue as the source.")
    if not _allows(letters, realm.arn(queue)):
        raise wrong(f"Queue {realm.arn(target)} does not allow this queue to use it as a dead-letter queue.")
    return target, str(most)


def _redrive_allow_policy(value: str) -> str | None:
    if not value:
        return None

    def wrong(reason: str) -> errors.SqsError:
        return errors.invalid_value(value, REDRIVE_ALLOW_POLICY, reason)

    policy = _json(value)
    if not isinstance(policy, dict):
        raise wrong("Amazon SQS can't create the redrive allow policy, as it is not a valid JSON map.")
    permission, sources = policy.get("redrivePermission"), policy.get("sourceQueueArns")
    if permission not in ("allowAll", "denyAll", "byQueue"):
        raise wrong("Amazon SQS can't create the redrive allow policy, as it's in an unsupported format.")
    if permission != "byQueue":
        if sources is not None:
            raise wrong("sourceQueueArns can be given with byQueue only.")
    elif not isinstance(sources, list) or not 1 <= len(sources) <= _MOST_SOURCES:
        raise wrong(f"byQueue needs sourceQueueArns, 1 to {_MOST_SOURCES} of them.")
    return value


def _allows(letters: QueueInfo, source_arn: str) -> bool:
    policy = _json(letters.attributes.get(REDRIVE_ALLOW_POLICY, ""))
    if not isinstance(policy, dict) or policy.get("redrivePermission") == "allowAll":
        return True
    if policy.get("redrivePermission") == "denyAll":
        return False
    sources = policy.get("sourceQueueArns")
    return isinstance(sources, list) and source_arn in sources


# -- showing


def wants_counts(names: Iterable[str]) -> bool:
    return any(name == ALL or name in COUNTS for name in names)


def show(realm: Realm, info: QueueInfo, counts: Counts | None) -> dict[str, str]:
    """Every attribute that a queue has."""
    settings, kept = info.settings, info.attributes
    shown = {
        "QueueArn": realm.arn(info.name),
        CREATED: kept.get(CREATED, "0"),
        MODIFIED: kept.get(MODIFIED, kept.get(CREATED, "0")),
        "SqsManagedSseEnabled": kept.get("SqsManagedSseEnabled", "false"),
    }
    for name, row in _NUMBERS.items():
        shown[name] = str(getattr(settings, row.setting.replace(".", "_")) // row.factor)
    if counts is not None:
        shown |= {name: str(getattr(counts, field)) for name, field in COUNTS.items()}
    if settings.is_fifo:
        shown["FifoQueue"] = "true"
        shown["ContentBasedDeduplication"] = "true" if settings.dedupe_by_content else "false"
        shown["DeduplicationScope"] = settings.dedupe_scope
        shown["FifoThroughputLimit"] = kept.get("FifoThroughputLimit", "perQueue")
    if settings.dead_letter and settings.max_receives:
        policy = {"deadLetterTargetArn": realm.arn(settings.dead_letter), "maxReceiveCount": settings.max_receives}
        shown[REDRIVE_POLICY] = json.dumps(policy, separators=(",", ":"))
    for name in (POLICY, REDRIVE_ALLOW_POLICY, "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds"):
        if name in kept:
            shown[name] = kept[name]
    return shown


def first_difference(realm: Realm, info: QueueInfo, given: Mapping[str, str]) -> str | None:
    """The name of an attribute that a queue has another value of than the one given."""
    shown = show(realm, info, None)
    for name, value in given.items():
        same: Callable[[str], Any] = _comparable if name.endswith("Policy") else str
        if same(shown.get(name, "")) != same(value):
            return name
    return None


def _comparable(text: str) -> Any:
    found = _json(text)
    if isinstance(found, dict) and "maxReceiveCount" in found:
        found["maxReceiveCount"] = str(found["maxReceiveCount"])
    return found


def tags_of(info: QueueInfo) -> dict[str, str]:
    return {
        name.removeprefix(TAG_PREFIX): value for name, value in info.attributes.items() if name.startswith(TAG_PREFIX)
    }
