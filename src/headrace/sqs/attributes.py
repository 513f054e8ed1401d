"""The attributes of a queue in the SQS API: settings of the queue (`queue.*`), or stored in `queue.attributes`.

Stored and shown without effect: `FifoThroughputLimit` (nothing is limited), and `Kms*` and `SqsManagedSseEnabled` (use
the broker's own encryption, or encrypt the disk). Beyond AWS: `MaxBacklogMessages`, `MaxBacklogBytes`,
`MaxBacklogAge` (in seconds) and `MaxBacklogPolicy`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from headrace.config.backlog import POLICIES
from headrace.queues.api import Counts, QueueInfo
from headrace.sqs import access_policy, errors, redrive
from headrace.sqs.access import POLICY_ATTRIBUTE, TAG_PREFIX
from headrace.sqs.calls import Realm

ALL = "All"
CREATED = "CreatedTimestamp"
MODIFIED = "LastModifiedTimestamp"
POLICY = POLICY_ATTRIBUTE
REDRIVE_POLICY = redrive.POLICY
REDRIVE_ALLOW_POLICY = redrive.ALLOW_POLICY
FIFO = "FifoQueue"
FIFO_SUFFIX = ".fifo"
COUNTS = {
    "ApproximateNumberOfMessages": "available",
    "ApproximateNumberOfMessagesNotVisible": "in_flight",
    "ApproximateNumberOfMessagesDelayed": "delayed",
}
_BY_CONTENT = "ContentBasedDeduplication"
_SCOPE = "DeduplicationScope"
_LIMIT = "FifoThroughputLimit"
_KMS_KEY = "KmsMasterKeyId"
_KMS_REUSE = "KmsDataKeyReusePeriodSeconds"
_SSE = "SqsManagedSseEnabled"
_DEFAULT_REUSE_S = "300"
_MOST_KEY_LENGTH = 2_048


class _Number(NamedTuple):
    setting: str
    """Empty for one that is stored only."""
    low: int
    high: int
    factor: int


_NUMBERS = {
    "VisibilityTimeout": _Number("visibility.timeout.ms", 0, 43_200, 1000),
    "MaximumMessageSize": _Number("max.message.bytes", 1024, 1_048_576, 1),
    "MessageRetentionPeriod": _Number("retention.ms", 60, 1_209_600, 1000),
    "DelaySeconds": _Number("delay.ms", 0, 900, 1000),
    "ReceiveMessageWaitTimeSeconds": _Number("receive.wait.ms", 0, 20, 1000),
    _KMS_REUSE: _Number("", 60, 86_400, 1),
    "MaxBacklogMessages": _Number("max.backlog.messages", 0, 2**53, 1),
    "MaxBacklogBytes": _Number("max.backlog.bytes", 0, 2**53, 1),
    "MaxBacklogAge": _Number("max.backlog.age.ms", 0, 2**43, 1000),
}
_EXTENSIONS = ("MaxBacklogMessages", "MaxBacklogBytes", "MaxBacklogAge")
"""Attributes that AWS does not have: shown where they are set."""
_BACKLOG_POLICY = "MaxBacklogPolicy"
_BOOLEANS = (FIFO, _BY_CONTENT, _SSE)
_CHOICES = {
    _SCOPE: ("queue", "messageGroup"),
    _LIMIT: ("perQueue", "perMessageGroupId"),
    _BACKLOG_POLICY: POLICIES,
}
_FIFO_ONLY = (_BY_CONTENT, _SCOPE, _LIMIT)
_READ_ONLY = frozenset({*COUNTS, CREATED, MODIFIED, "QueueArn"})
KNOWN = frozenset(
    {*_NUMBERS, *_BOOLEANS, *_CHOICES, *_READ_ONLY, POLICY, REDRIVE_POLICY, REDRIVE_ALLOW_POLICY, _KMS_KEY}
)


class AttributeChange(NamedTuple):
    settings: dict[str, str | None]
    stored: dict[str, str | None]


# -- values as clients send them


def given_attributes(attributes: Mapping[str, str] | None) -> dict[str, str]:
    """The attributes of a request; AWS ignores spaces around their names."""
    return {name.strip(): value for name, value in (attributes or {}).items()}


def dead_letter_targets(_: object, request: Any) -> Iterable[str]:
    """The queue that a request wants to be the dead-letter queue of another: none or one."""
    target = redrive.target_named(given_attributes(request.Attributes).get(REDRIVE_POLICY, ""))
    return () if target is None else (target,)


def changes_policy(request: Any) -> bool:
    return POLICY in given_attributes(request.Attributes)


def _normalized(name: str, value: str) -> str:
    """The value as it is shown; `SqsError` if the attribute cannot have it. Policies are checked elsewhere."""
    if name in _NUMBERS:
        row = _NUMBERS[name]
        if not value.isascii() or not value.isdigit() or len(value) > 20 or not row.low <= int(value) <= row.high:
            raise errors.invalid_attribute_value(name)
        return str(int(value))
    if name in _BOOLEANS:
        # Python's str(True) is `True`.
        lowered = value.lower()
        if lowered not in ("true", "false"):
            raise errors.invalid_attribute_value(name)
        return lowered
    if name in _CHOICES and value not in _CHOICES[name]:
        raise errors.invalid_attribute_value(name)
    if name == _KMS_KEY and len(value) > _MOST_KEY_LENGTH:
        raise errors.invalid_attribute_value(name)
    return value


def is_true(name: str, given: Mapping[str, str]) -> bool | None:
    """The value of a boolean attribute; None if it is not given."""
    return _normalized(name, given[name]) == "true" if name in given else None


def parse(realm: Realm, queue: str, given: Mapping[str, str], existing: QueueInfo | None) -> AttributeChange:
    """The change that attributes make to a queue, which need not exist yet. The caller checks `FifoQueue`."""
    is_fifo = queue.endswith(FIFO_SUFFIX) if existing is None else existing.settings.is_fifo
    values = {name: _checked(name, value, is_fifo) for name, value in given.items()}
    _check_combinations(values, existing)
    settings: dict[str, str | None] = {}
    stored: dict[str, str | None] = {}
    for name, value in values.items():
        if name == REDRIVE_POLICY:
            changed, policy = redrive.changes(queue, redrive.parse_policy(realm, queue, value, is_fifo))
            settings |= changed
            stored |= policy
        elif name in _NUMBERS and _NUMBERS[name].setting:
            row = _NUMBERS[name]
            settings[row.setting] = str(int(value) * row.factor)
        elif name == _BY_CONTENT:
            settings["dedupe.by.content"] = value
        elif name == _SCOPE:
            settings["dedupe.scope"] = value
        elif name == _BACKLOG_POLICY:
            settings["max.backlog.policy"] = value
        elif name != FIFO:
            stored[name] = value or None
    if values.get(_KMS_KEY):
        stored[_SSE] = "false"
    elif values.get(_SSE) == "true":
        stored[_KMS_KEY] = None
    return AttributeChange(settings, stored)


def _checked(name: str, value: str, is_fifo: bool) -> str:
    if name not in KNOWN or name in _READ_ONLY:
        raise errors.invalid_attribute_name(name)
    if name in _FIFO_ONLY and not is_fifo:
        raise errors.invalid_attribute_name(name) if name == _BY_CONTENT else errors.attribute_of_fifo_queues(name)
    if name == POLICY and value:
        access_policy.check(value)
    if name == REDRIVE_ALLOW_POLICY and value:
        redrive.check_allow_policy(value)
    return _normalized(name, value)


def _check_combinations(values: Mapping[str, str], existing: QueueInfo | None) -> None:
    if values.get(_KMS_KEY) and values.get(_SSE) == "true":
        raise errors.encryption_twice()
    scope, limit = "queue", "perQueue"
    if existing is not None:
        scope, limit = existing.settings.dedupe_scope, existing.attributes.get(_LIMIT, limit)
    is_changed = _SCOPE in values or _LIMIT in values
    scope, limit = values.get(_SCOPE, scope), values.get(_LIMIT, limit)
    if is_changed and limit == "perMessageGroupId" and scope != "messageGroup":
        raise errors.invalid_attribute_value(
            _LIMIT, "The perMessageGroupId value is allowed only when the value for DeduplicationScope is messageGroup."
        )


# -- showing


def check_names(names: Iterable[str], info: QueueInfo) -> None:
    """`SqsError` for an attribute that this queue cannot be asked for."""
    for name in names:
        is_foreign = name in (FIFO, _BY_CONTENT) and not info.settings.is_fifo
        if is_foreign or (name != ALL and name not in KNOWN):
            raise errors.invalid_attribute_name(name)


def wants_counts(names: Iterable[str]) -> bool:
    return any(name == ALL or name in COUNTS for name in names)


def show(realm: Realm, info: QueueInfo, counts: Counts | None) -> dict[str, str]:
    """Every attribute that a queue has."""
    settings, stored = info.settings, info.attributes
    shown = {
        "QueueArn": realm.arn(info.name),
        CREATED: stored.get(CREATED, "0"),
        MODIFIED: stored.get(MODIFIED, stored.get(CREATED, "0")),
        _SSE: stored.get(_SSE, "false"),
    }
    for name, row in _NUMBERS.items():
        if row.setting:
            shown[name] = str(getattr(settings, row.setting.replace(".", "_")) // row.factor)
    for name in _EXTENSIONS:
        if shown[name] == "0":
            del shown[name]
    if settings.backlog_bound is not None:
        shown[_BACKLOG_POLICY] = settings.max_backlog_policy
    if counts is not None:
        shown |= {name: str(getattr(counts, field)) for name, field in COUNTS.items()}
    if settings.is_fifo:
        shown[FIFO] = "true"
        shown[_BY_CONTENT] = "true" if settings.dedupe_by_content else "false"
        shown[_SCOPE] = settings.dedupe_scope
        shown[_LIMIT] = stored.get(_LIMIT, "perQueue")
    policy = redrive.policy_of(info)
    if policy is not None:
        shown[REDRIVE_POLICY] = redrive.show(realm, policy)
    for name in (POLICY, REDRIVE_ALLOW_POLICY):
        if name in stored:
            shown[name] = stored[name]
    if _KMS_KEY in stored:
        shown |= {_KMS_KEY: stored[_KMS_KEY], _KMS_REUSE: stored.get(_KMS_REUSE, _DEFAULT_REUSE_S), _SSE: "false"}
    return shown


def first_difference(realm: Realm, info: QueueInfo, given: Mapping[str, str]) -> str | None:
    """The name of an attribute that a queue has another value of than the one given."""
    shown = show(realm, info, None)
    shown.setdefault(_KMS_REUSE, info.attributes.get(_KMS_REUSE, _DEFAULT_REUSE_S))
    for name, value in given.items():
        same: Callable[[str], Any] = str
        if name.endswith("Policy"):
            same = redrive.comparable if name == REDRIVE_POLICY else access_policy.load
        if same(shown.get(name, "")) != same(_normalized(name, value)):
            return name
    return None


def tags_of(info: QueueInfo) -> dict[str, str]:
    return {
        name.removeprefix(TAG_PREFIX): value for name, value in info.attributes.items() if name.startswith(TAG_PREFIX)
    }
