"""Settings of a topic, of brokers or of a group as the API shows and changes them."""

from collections.abc import Mapping
from types import ModuleType
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headrace.admin.errors import check_kafka
from headrace.admin.kafka_requests import ask
from headrace.admin.routes import AdminRequest
from headrace.config.broker import BROKER_SETTINGS
from headrace.config.group import GROUP_SETTINGS
from headrace.config.settings import Setting
from headrace.config.topic import TOPIC_SETTINGS
from headrace.protocol.codec import make

TOPIC, BROKER, GROUP = 2, 4, 32
"""Kafka's types of config resources."""
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = 32, 44
_SET, _DELETE = 0, 1
_OWN_SOURCES = {1: "topic", 2: "broker", 3: "all brokers", 4: "start", 5: "default", 6: "logger", 8: "group"}
_ROWS: Mapping[int, Mapping[str, Setting]] = {TOPIC: TOPIC_SETTINGS, BROKER: BROKER_SETTINGS, GROUP: GROUP_SETTINGS}
_SET_HERE = {TOPIC: 1, BROKER: 2, GROUP: 8}


class SettingEntry(msgspec.Struct, frozen=True):
    name: str
    value: str | None
    """Null if it is hidden, as a password is."""
    default: str | None
    is_default: bool
    source: str
    """Where the value comes from: topic, group, broker, all brokers, start (a flag, a file), or default."""
    doc: str
    type: str
    is_read_only: bool
    choices: list[str]


class SettingChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    set: Annotated[dict[str, str], Meta(max_length=200)] = {}
    reset: Annotated[list[str], Meta(max_length=200)] = []
    """Settings that go back to their defaults."""
    dry_run: bool = False


class SettingChange(msgspec.Struct, frozen=True):
    name: str
    before: str | None
    after: str | None
    """Null for one that goes back to its default."""


class ChangedSettings(msgspec.Struct, frozen=True):
    changes: list[SettingChange]
    dry_run: bool


async def describe(request: AdminRequest, kind: int, name: str, broker_id: int | None = None) -> list[SettingEntry]:
    def build(schema: ModuleType) -> Any:
        resource: Any = make(
            schema.DescribeConfigsResource, resource_type=kind, resource_name=name, configuration_keys=None
        )
        return make(schema.DescribeConfigsRequest, resources=(resource,))

    (result,) = (await ask(request, _DESCRIBE_CONFIGS, 4, build, broker_id=broker_id)).results
    check_kafka(result.error_code, result.error_message)
    return sorted((_entry(kind, each) for each in result.configs), key=lambda each: each.name)


def _entry(kind: int, found: Any) -> SettingEntry:
    row = _ROWS[kind].get(str(found.name))
    source = int(found.config_source)
    return SettingEntry(
        name=str(found.name),
        value=None if found.value is None else str(found.value),
        default=None if row is None else _text(row.default),
        is_default=source not in (_SET_HERE[kind], 4),
        source=_OWN_SOURCES.get(source, "unknown"),
        doc="" if row is None else row.doc,
        type="string" if row is None else row.kind.name.lower(),
        is_read_only=bool(found.read_only),
        choices=[] if row is None else list(row.choices),
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


async def alter(request: AdminRequest, kind: int, name: str, wanted: SettingChanges) -> ChangedSettings:
    """Change settings, all or none; or only check it."""
    before = {each.name: each for each in await describe(request, kind, name)}

    def build(schema: ModuleType) -> Any:
        configs: list[Any] = [
            make(schema.AlterableConfig, name=each, config_operation=_SET, value=text)
            for each, text in wanted.set.items()
        ]
        configs += [
            make(schema.AlterableConfig, name=each, config_operation=_DELETE, value=None) for each in wanted.reset
        ]
        resource: Any = make(
            schema.AlterConfigsResource, resource_type=kind, resource_name=name, configs=tuple(configs)
        )
        return make(schema.IncrementalAlterConfigsRequest, resources=(resource,), validate_only=wanted.dry_run)

    (result,) = (await ask(request, _ALTER_CONFIGS, 1, build)).responses
    check_kafka(result.error_code, result.error_message)
    after: dict[str, str | None] = {**wanted.set, **dict.fromkeys(wanted.reset)}
    changes = [
        SettingChange(each, before[each].value if each in before else None, text) for each, text in after.items()
    ]
    return ChangedSettings(changes, wanted.dry_run)
