"""The work of `headrace cluster settings`, `alter` and `log-level`, and of `headrace group alter`."""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.cli.cluster.view import connected
from headrace.cli.errors import CommandFailed
from headrace.cli.output import print_json, setting_text, table
from headrace.config.broker import BROKER_SETTINGS
from headrace.wire import Cluster, ConfigResource, Refused, SettingInForce


def show_brokers(bootstrap: str, broker_id: int | None, *, all_settings: bool, as_json: bool) -> None:
    """The settings of each broker that is there, or of one of them."""
    with connected(bootstrap) as cluster:
        found = {each: cluster.settings_of(ConfigResource.BROKER, str(each)) for each in _brokers(cluster, broker_id)}
    if as_json:
        print_json(
            [{"broker": number, "settings": [_plain(each) for each in settings]} for number, settings in found.items()]
        )
        return
    # One row for all brokers that agree.
    rows: dict[SettingInForce, list[int]] = {}
    for number, settings in found.items():
        for each in settings:
            rows.setdefault(each, []).append(number)
    shown = [(each, who) for each, who in sorted(rows.items()) if all_settings or _is_chosen(each, rows)]
    columns = [(head, "left") for head in ("SETTING", "VALUE", "FROM", "BROKER", "CHANGE")]
    table(
        None,
        columns,
        [
            (each.name, _text(each), each.source, _who(who, found), "restart" if each.is_read_only else "at once")
            for each, who in shown
        ],
    )
    if not all_settings:
        print(f"\n{len(rows) - len(shown)} settings have their default, or are other names of these; --all shows them")


def _is_chosen(each: SettingInForce, rows: Iterable[SettingInForce]) -> bool:
    """Whether the setting was changed from its default; names of Kafka that Headrace only reports do not count."""
    is_headrace = any(row.name == "data.dir" for row in rows)
    return each.source != "default" and (each.name in BROKER_SETTINGS or not is_headrace)


def _who(numbers: list[int], brokers: Mapping[int, object]) -> str:
    return "all" if len(numbers) == len(brokers) > 1 else ", ".join(map(str, numbers))


def alter_brokers(bootstrap: str, broker_id: int | None, changes: Mapping[str, str | None]) -> None:
    with connected(bootstrap) as cluster:
        if broker_id is not None:
            _brokers(cluster, broker_id)
        _alter(cluster, ConfigResource.BROKER, "" if broker_id is None else str(broker_id), changes)
    whose = "all brokers" if broker_id is None else f"broker {broker_id}"
    print(f"Changed {', '.join(changes)} of {whose}")


def set_log_level(bootstrap: str, broker_id: int | None, logger: str, level: str) -> None:
    """Set the log level on each broker: there is no level for the cluster."""
    with connected(bootstrap) as cluster:
        brokers = _brokers(cluster, broker_id)
        for number in brokers:
            _alter(cluster, ConfigResource.LOGGERS, str(number), {logger: level.upper()})
    what = "everything" if logger == "root" else logger
    print(f"Broker {', '.join(map(str, brokers))} logs {what} from {level.upper()} on, until its next restart")


def alter_group(bootstrap: str, group: str, changes: Mapping[str, str | None]) -> None:
    with connected(bootstrap) as cluster:
        _alter(cluster, ConfigResource.GROUP, group, changes)
    print(f"Changed {', '.join(changes)} of the group {group}")


def group_settings(bootstrap: str, group: str) -> list[dict[str, Any]]:
    """The settings that a group has of its own. None where the broker knows none: Kafka before 3.8."""
    with connected(bootstrap) as cluster:
        try:
            found = cluster.settings_of(ConfigResource.GROUP, group)
        except Refused:
            return []
    return [_plain(each) for each in found if each.source == "group"]


def _alter(cluster: Cluster, resource: ConfigResource, name: str, changes: Mapping[str, str | None]) -> None:
    try:
        cluster.alter_settings(resource, name, changes)
    except Refused as error:
        # The broker's own sentence is the last part; what failed is plain from the command.
        raise CommandFailed(f"nothing was changed: {str(error).partition(': ')[2] or error}") from None


def _brokers(cluster: Cluster, broker_id: int | None) -> list[int]:
    known = {number: node for number, node in cluster.describe().brokers.items() if not node.is_fenced}
    if broker_id is None:
        return list(known)
    if broker_id not in known:
        raise CommandFailed(f"broker {broker_id} is not there, only {', '.join(map(str, known))}")
    return [broker_id]


def _plain(each: SettingInForce) -> dict[str, Any]:
    return {"name": each.name, "value": each.value, "source": each.source, "read_only": each.is_read_only}


def _text(each: SettingInForce) -> str:
    return "(not shown)" if each.value is None else setting_text(each.name, each.value)
