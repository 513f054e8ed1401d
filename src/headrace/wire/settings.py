"""Describes and alters the settings of groups, of brokers and of their loggers, with the source of each value."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import ModuleType
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from headrace.config.http_listeners import LISTENERS
from headrace.model.image import Endpoint
from headrace.protocol.codec import make
from headrace.wire.errors import BrokerUnreachable, WireError, check, refusal
from headrace.wire.router import LeaderRouter

_DESCRIBE_CONFIGS, _ALTER_CONFIGS = 32, 44
_SET, _DELETE = 0, 1
_TIMEOUT_S = 30.0


class ConfigResource(IntEnum):
    """Kafka's config resource types."""

    BROKER = 4
    LOGGERS = 8
    CLIENT_METRICS = 16
    GROUP = 32


_SOURCES = {
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "start",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}
_NAMES = {
    ConfigResource.BROKER: "broker",
    ConfigResource.LOGGERS: "the loggers of broker",
    ConfigResource.CLIENT_METRICS: "the subscription",
    ConfigResource.GROUP: "the group",
}


class SettingInForce(NamedTuple):
    name: str
    value: str | None
    """None if the broker hides it, as it does passwords."""
    source: str
    """The source of the value: group, broker, all brokers, start (a flag, the environment, a file), default."""
    is_read_only: bool
    """True if changing it needs a restart of the broker."""


def settings_of(
    router: LeaderRouter, resource: ConfigResource, name: str, keys: Sequence[str] | None = None
) -> list[SettingInForce]:
    """These settings of a group, a broker or its loggers, or all, by name. Defaults are included."""

    def build(schema: ModuleType) -> Any:
        one: Any = make(
            schema.DescribeConfigsResource,
            resource_type=int(resource),
            resource_name=name,
            configuration_keys=None if keys is None else tuple(keys),
        )
        return make(schema.DescribeConfigsRequest, resources=(one,))

    def attempt() -> list[SettingInForce]:
        with router.using(_address(router, resource, name)) as connection:
            (result,) = connection.call(_DESCRIBE_CONFIGS, 4, build, lowest=1).results
        check(f"reading the settings of {whose(resource, name)}", result.error_code, result.error_message)
        found = [
            SettingInForce(
                str(entry.name),
                None if entry.value is None else str(entry.value),
                _SOURCES.get(int(entry.config_source), "unknown"),
                bool(entry.read_only),
            )
            for entry in result.configs
        ]
        return sorted(found)

    return router.patiently(attempt)


def http_listeners(router: LeaderRouter) -> dict[Endpoint, str]:
    """The setting `http.listeners` of each broker that answers, by its address. It needs no permission."""
    found: dict[Endpoint, str] = {}
    failure: WireError | None = None
    for number, endpoint in sorted(router.brokers().items()):
        try:
            (setting,) = settings_of(router, ConfigResource.BROKER, str(number), (LISTENERS,)) or (None,)
        except BrokerUnreachable as error:
            failure = error
            continue
        found[endpoint] = "" if setting is None else setting.value or ""
    if not found and failure is not None:
        raise failure
    return found


def alter_settings(
    router: LeaderRouter, resource: ConfigResource, name: str, changes: Mapping[str, str | None]
) -> None:
    """Change settings atomically; a value of None resets a setting. An empty name means all brokers."""

    def build(schema: ModuleType) -> Any:
        configs: tuple[Any, ...] = tuple(
            make(schema.AlterableConfig, name=key, config_operation=_DELETE if text is None else _SET, value=text)
            for key, text in changes.items()
        )
        one: Any = make(schema.AlterConfigsResource, resource_type=int(resource), resource_name=name, configs=configs)
        return make(schema.IncrementalAlterConfigsRequest, resources=(one,), validate_only=False)

    def attempt() -> None:
        address = router.controller() if not name else _address(router, resource, name)
        with router.using(address) as connection:
            (result,) = connection.call(_ALTER_CONFIGS, 1, build, wait_s=_TIMEOUT_S).responses
        check(f"changing the settings of {whose(resource, name)}", result.error_code, result.error_message)

    router.patiently(attempt)


def whose(resource: ConfigResource, name: str) -> str:
    return f"{_NAMES[resource]} {name}" if name else "all brokers"


def _address(router: LeaderRouter, resource: ConfigResource, name: str) -> Endpoint:
    """The broker itself for its own settings; the controller for groups, clients and all brokers."""
    if resource in (ConfigResource.GROUP, ConfigResource.CLIENT_METRICS) or not name:
        return router.controller()
    address = router.brokers().get(int(name))
    if address is None:
        raise refusal(f"asking broker {name}", ErrorCode.broker_not_available.value)
    return address
