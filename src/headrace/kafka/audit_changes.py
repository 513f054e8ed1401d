"""Administrative changes as the audit log shows them: for each resource of a request, its name, details and error.

Each API lists what may be shown. Passwords, salts and keys are never among it, nor are the texts of errors, which may
repeat a value. Of settings only the names are shown, and values that cannot be a secret: numbers, booleans and those
from a fixed list.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from headrace.config.broker import BROKER_SETTINGS
from headrace.config.group import GROUP_SETTINGS
from headrace.config.settings import Kind, Setting
from headrace.config.topic import TOPIC_SETTINGS
from headrace.model.acls import AclOperation, PatternType, Permission, ResourceType
from headrace.model.errors import SettingsError
from headrace.security.audit.event import ANY, clip

METADATA = 3
_ITEMS_MAX = 20
_UNKNOWN_ERROR = "UNKNOWN_SERVER_ERROR"
_NAMES = ("name", "topic", "topic_name", "group_id", "user", "resource_name")
_CONFIG_RESOURCES: Mapping[int, tuple[str, Mapping[str, Setting]]] = {
    2: ("TOPIC", TOPIC_SETTINGS),
    4: ("BROKER", BROKER_SETTINGS),
    8: ("BROKER_LOGGER", {}),
    16: ("CLIENT_METRICS", {}),
    32: ("GROUP", GROUP_SETTINGS),
}
_MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_SHOWN_KINDS = frozenset({Kind.BOOLEAN, Kind.INT, Kind.SHORT, Kind.LONG, Kind.DOUBLE})

Details = dict[str, Any]


class AdminChange(NamedTuple):
    """A change of one resource."""

    resource_type: str
    resource_name: str
    operation: str
    error: str = ""
    """The error code; empty if the change was made."""
    details: Details | None = None


def changes(api_key: int, request: Any, answer: Any) -> Iterator[AdminChange]:
    """The changes of an administrative request; `answer` is None if its handler failed."""
    if not getattr(request, "validate_only", False):
        yield from _DESCRIBERS[api_key](request, answer)


def wanted_topics(request: Any) -> list[str]:
    """The names in a Metadata request."""
    return [str(topic.name) for topic in request.topics or () if topic.name]


def created_topics(answer: Any, missing: Iterable[str]) -> Iterator[AdminChange]:
    """Topics that a Metadata request has created."""
    missing = set(missing)
    for topic in answer.topics if answer is not None else ():
        if topic.name in missing and not _code(topic):
            yield AdminChange("TOPIC", str(topic.name), "CREATE", details={"automatic": True})


# -- by API


def _create_topics(request: Any, answer: Any) -> Iterator[AdminChange]:
    errors = _Errors(answer)
    for topic in request.topics:
        details: Details = {
            "partitions": int(topic.num_partitions),
            "replicationFactor": int(topic.replication_factor),
            "settings": _settings(topic.configs, TOPIC_SETTINGS),
        }
        yield AdminChange("TOPIC", str(topic.name), "CREATE", errors.of(topic.name), details)


def _delete_topics(request: Any, answer: Any) -> Iterator[AdminChange]:
    """By the answer, which has the names of topics that the request names by id."""
    if answer is not None:
        for topic in answer.responses:
            yield AdminChange("TOPIC", str(topic.name or getattr(topic, "topic_id", "")), "DELETE", _code(topic))
        return
    topics: tuple[Any, ...] = getattr(request, "topics", ())
    names: tuple[str, ...] = getattr(request, "topic_names", ())
    for name in [topic.name or topic.topic_id for topic in topics] or names:
        yield AdminChange("TOPIC", str(name), "DELETE", _UNKNOWN_ERROR)


def _delete_records(request: Any, answer: Any) -> Iterator[AdminChange]:
    errors = _Errors(answer)
    for topic in request.topics:
        before = {str(each.partition_index): int(each.offset) for each in _some(topic.partitions)}
        yield AdminChange("TOPIC", str(topic.name), "DELETE", errors.of(topic.name), {"beforeOffsets": before})


def _create_partitions(request: Any, answer: Any) -> Iterator[AdminChange]:
    errors = _Errors(answer)
    for topic in request.topics:
        yield AdminChange("TOPIC", str(topic.name), "ALTER", errors.of(topic.name), {"partitions": int(topic.count)})


def _alter_configs(request: Any, answer: Any) -> Iterator[AdminChange]:
    by_resource = {}
    if answer is not None:
        by_resource = {(int(each.resource_type), each.resource_name): _code(each) for each in answer.responses}
    for resource in request.resources:
        number = int(resource.resource_type)
        kind, rows = _CONFIG_RESOURCES.get(number, (str(number), {}))
        error = by_resource.get((number, resource.resource_name), "" if answer is not None else _UNKNOWN_ERROR)
        details = {"settings": _settings(resource.configs, rows)}
        yield AdminChange(kind, resource.resource_name or ANY, "ALTER_CONFIGS", error, details)


def _create_acls(request: Any, answer: Any) -> Iterator[AdminChange]:
    results = [None] * len(request.creations) if answer is None else answer.results
    for acl, result in zip(request.creations, results, strict=False):
        yield AdminChange(
            _member(ResourceType, acl.resource_type),
            acl.resource_name,
            "ALTER",
            _code(result),
            _acl(acl, getattr(acl, "resource_pattern_type", PatternType.LITERAL)),
        )


def _delete_acls(request: Any, answer: Any) -> Iterator[AdminChange]:
    """Each ACL that was deleted, and each filter that matched none."""
    results = [None] * len(request.filters) if answer is None else answer.filter_results
    for wanted, result in zip(request.filters, results, strict=False):
        matching = () if result is None else result.matching_acls
        for acl in matching:
            kind = _member(ResourceType, acl.resource_type)
            pattern = getattr(acl, "pattern_type", PatternType.LITERAL)
            yield AdminChange(kind, acl.resource_name, "ALTER", _code(acl), _acl(acl, pattern))
        if not matching:
            yield AdminChange(
                _member(ResourceType, wanted.resource_type_filter),
                wanted.resource_name_filter or ANY,
                "ALTER",
                _code(result),
                {"matched": 0, "principal": clip(wanted.principal_filter or ANY)},
            )


def _alter_scram(request: Any, answer: Any) -> Iterator[AdminChange]:
    errors = _Errors(answer)
    users: dict[str, Details] = {}
    for verb, items in (("set", request.upsertions), ("deleted", request.deletions)):
        for item in items:
            mechanism = _MECHANISMS.get(int(item.mechanism), str(item.mechanism))
            users.setdefault(item.name, {}).setdefault(verb, []).append(mechanism)
    for name, details in users.items():
        yield AdminChange("USER", name, "ALTER", errors.of(name), details)


def _alter_quotas(request: Any, answer: Any) -> Iterator[AdminChange]:
    results = [None] * len(request.entries) if answer is None else answer.entries
    for entry, result in zip(request.entries, results, strict=False):
        entity = ",".join(f"{each.entity_type}={each.entity_name or '<default>'}" for each in entry.entity)
        quotas = {clip(each.key): None if each.remove else float(each.value) for each in _some(entry.ops)}
        yield AdminChange("QUOTA", entity, "ALTER_CONFIGS", _code(result), {"quotas": quotas})


def _reassign(request: Any, answer: Any) -> Iterator[AdminChange]:
    errors = _Errors(answer)
    for topic in request.topics:
        replicas = {
            str(each.partition_index): None if each.replicas is None else [int(id_) for id_ in each.replicas]
            for each in _some(topic.partitions)
        }
        yield AdminChange("TOPIC", str(topic.name), "ALTER", errors.of(topic.name), {"replicas": replicas})


def _update_features(request: Any, answer: Any) -> Iterator[AdminChange]:
    errors = _Errors(answer)
    for update in request.feature_updates:
        details = {"level": int(update.max_version_level)}
        yield AdminChange("FEATURE", update.feature, "ALTER", errors.of(update.feature), details)


def _elect_leaders(request: Any, answer: Any) -> Iterator[AdminChange]:
    errors = _Errors(answer)
    if request.topic_partitions is None:
        yield AdminChange("TOPIC", ANY, "ALTER", errors.of(ANY))
    for topic in request.topic_partitions or ():
        details = {"partitions": [int(each) for each in _some(topic.partitions)]}
        yield AdminChange("TOPIC", str(topic.topic), "ALTER", errors.of(topic.topic), details)


def _unregister_broker(request: Any, answer: Any) -> Iterator[AdminChange]:
    yield AdminChange("BROKER", str(int(request.broker_id)), "ALTER", _code(answer))


def _delete_groups(request: Any, answer: Any) -> Iterator[AdminChange]:
    errors = _Errors(answer)
    for group in request.groups_names:
        yield AdminChange("GROUP", str(group), "DELETE", errors.of(group))


def _group_offsets(operation: str) -> "Describer":
    def describe(request: Any, answer: Any) -> Iterator[AdminChange]:
        """One change of the group; the first error of a topic is its error."""
        topics = [str(getattr(each, "name", None) or getattr(each, "topic_name", "")) for each in request.topics]
        error = _UNKNOWN_ERROR if answer is None else _worst(answer)
        yield AdminChange("GROUP", str(request.group_id), operation, error, {"topics": _some(topics)})

    return describe


def _alter_log_dirs(request: Any, answer: Any) -> Iterator[AdminChange]:
    errors = _Errors(answer)
    for directory in request.dirs:
        for topic in directory.topics:
            yield AdminChange(
                "TOPIC", str(topic.name), "ALTER", errors.of(topic.name), {"directory": clip(directory.path)}
            )


def _token(operation: str) -> "Describer":
    def describe(request: Any, answer: Any) -> Iterator[AdminChange]:
        yield AdminChange("DELEGATION_TOKEN", "", operation, _code(answer))

    return describe


# -- parts


class _Errors:
    """The errors of an answer by the name of their resource; an error of the whole request is that of each."""

    def __init__(self, answer: Any) -> None:
        self._all = _code(answer)
        self._by_name: dict[str, str] = {}
        for _, parts in _lists(answer):
            for part in parts:
                name = next((str(value) for each in _NAMES if (value := getattr(part, each, None))), None)
                if name is not None:
                    self._by_name[name] = _worst(part)

    def of(self, name: object) -> str:
        return self._all or self._by_name.get(str(name), "")


def _lists(entity: Any) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for name in getattr(entity, "__dataclass_fields__", ()):
        value = getattr(entity, name)
        if isinstance(value, tuple):
            yield name, value


def _worst(entity: Any) -> str:
    """The first error of an entity and of the entities in it."""
    if code := _code(entity):
        return code
    for _, parts in _lists(entity):
        for part in parts:
            if hasattr(part, "__dataclass_fields__") and (code := _worst(part)):
                return code
    return ""


def _code(entity: Any) -> str:
    """The name of an entity's error, as Kafka writes it; empty for none or without such a field."""
    if entity is None:
        return _UNKNOWN_ERROR
    code = getattr(entity, "error_code", None)
    return "" if code is None or not code.value else str(code.name).upper()


def _settings(configs: Iterable[Any], rows: Mapping[str, Setting]) -> Details:
    return {clip(each.name): _shown_value(each.value, rows.get(each.name)) for each in _some(configs)}


def _shown_value(text: str | None, row: Setting | None) -> str | None:
    """The value if it cannot be a secret; None otherwise, and for a setting that goes back to its default."""
    if text is None or row is None or not (row.kind in _SHOWN_KINDS or row.choices):
        return None
    try:
        return row.render(row.parse(text))
    except SettingsError:
        return None


def _acl(acl: Any, pattern: int) -> Details:
    return {
        "acl": {
            "principal": clip(acl.principal),
            "host": clip(acl.host),
            "operation": _member(AclOperation, acl.operation),
            "permission": _member(Permission, acl.permission_type),
            "patternType": _member(PatternType, pattern),
        }
    }


def _member(kind: Any, number: int) -> str:
    try:
        return str(kind(int(number)).name)
    except ValueError:
        return str(int(number))


def _some(items: Iterable[Any]) -> list[Any]:
    """The first items: an event has a bounded size."""
    return list(items)[:_ITEMS_MAX]


Describer = Callable[[Any, Any], Iterator[AdminChange]]

_DESCRIBERS: Mapping[int, Describer] = {
    19: _create_topics,
    20: _delete_topics,
    21: _delete_records,
    30: _create_acls,
    31: _delete_acls,
    33: _alter_configs,
    34: _alter_log_dirs,
    37: _create_partitions,
    38: _token("CREATE_TOKENS"),
    39: _token("ALTER"),
    40: _token("ALTER"),
    42: _delete_groups,
    43: _elect_leaders,
    44: _alter_configs,
    45: _reassign,
    47: _group_offsets("DELETE"),
    49: _alter_quotas,
    51: _alter_scram,
    57: _update_features,
    64: _unregister_broker,
    91: _group_offsets("READ"),
    92: _group_offsets("DELETE"),
}
ADMINISTRATIVE = frozenset(_DESCRIBERS)
"""The APIs that change something but messages and offsets of the client's own groups."""
