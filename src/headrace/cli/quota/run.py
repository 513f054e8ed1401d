"""The work of `headrace quota`: quotas over Kafka's protocol, their use by the HTTP API."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.cli.cluster.plans import parse_size
from headrace.cli.cluster.view import connected
from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.http_api import HttpApi
from headrace.cli.output import human_bytes, print_json, table, table_of
from headrace.cli.screen import is_screen
from headrace.model.quotas import (
    ACCESS_KEY,
    CLIENT_ID,
    CLIENT_ID_PREFIX,
    ENTITY_TYPES,
    IP,
    QUEUE,
    TOPIC_PREFIX,
    USER,
    QuotaEntity,
    QuotaKind,
    QuotaValues,
    entity_text,
)
from headrace.wire import Cluster, Refused

_NAMES = {
    "produce": QuotaKind.PRODUCE,
    "consume": QuotaKind.FETCH,
    "time": QuotaKind.REQUEST,
    "changes": QuotaKind.MUTATION,
    "connections": QuotaKind.CONNECTION,
    "requests": QuotaKind.SQS_REQUESTS,
    "messages": QuotaKind.SQS_MESSAGES,
    "stored": QuotaKind.STORED,
}
_SHORT = {kind.value: name for name, kind in _NAMES.items()}
_BYTES = (QuotaKind.PRODUCE, QuotaKind.FETCH)
_DEFAULT = "<default>"
_MAX_ROWS = 200
_WARM_UP_S = 1.2

Choice = tuple[str, bool]
"""The name of an entity, and whether the default is meant."""


# -- what was typed


def entity_of(
    *,
    user: Choice,
    client_id: Choice,
    prefix: str,
    ip: Choice,
    queue: Choice,
    access_key: Choice,
    topic_prefix: str,
) -> QuotaEntity:
    """The entity that options name. Raises `BadArgument`."""
    names: dict[str, str | None] = {}
    for kind, option, (name, is_default) in (
        (USER, "user", user), (CLIENT_ID, "client-id", client_id), (IP, "ip", ip), (QUEUE, "queue", queue),
        (ACCESS_KEY, "access-key", access_key),
    ):  # fmt: skip
        if name and is_default:
            raise BadArgument(f"give --{option} or --default-{option}, not both")
        if name or is_default:
            names[kind] = name or None
    if prefix:
        names[CLIENT_ID_PREFIX] = prefix
    if topic_prefix:
        names[TOPIC_PREFIX] = topic_prefix
    if not names:
        raise BadArgument(
            "say whose quota it is: --user, --client-id, --client-id-prefix, --ip, --queue, --access-key, "
            "--topic-prefix, or a --default-…"
        )
    return tuple((kind, names[kind]) for kind in ENTITY_TYPES if kind in names)


def limits_of(
    *,
    produce: str | None,
    consume: str | None,
    time: float | None,
    changes: float | None,
    connections: int | None,
    requests: float | None,
    messages: float | None,
    stored: str | None,
) -> dict[str, float]:
    """The limits that options give, by Kafka's names. Raises `BadArgument`."""
    typed: dict[QuotaKind, float | None] = {
        QuotaKind.PRODUCE: None if produce is None else float(parse_size(produce)),
        QuotaKind.FETCH: None if consume is None else float(parse_size(consume)),
        QuotaKind.REQUEST: time,
        QuotaKind.MUTATION: changes,
        QuotaKind.CONNECTION: connections,
        QuotaKind.SQS_REQUESTS: requests,
        QuotaKind.SQS_MESSAGES: messages,
        QuotaKind.STORED: None if stored is None else float(parse_size(stored)),
    }
    limits = {kind.value: float(value) for kind, value in typed.items() if value is not None}
    if not limits:
        raise BadArgument(
            "give a limit: --produce, --consume, --time, --changes, --connections, --requests, --messages or --stored"
        )
    return limits


# -- quotas


@contextmanager
def _connected(bootstrap: str) -> Iterator[Cluster]:
    with connected(bootstrap) as cluster:
        try:
            yield cluster
        except Refused as error:
            raise CommandFailed(str(error)) from None


def set_quotas(bootstrap: str, entity: QuotaEntity, limits: Mapping[str, float], *, as_json: bool) -> None:
    with _connected(bootstrap) as cluster:
        cluster.alter_quotas(entity, limits)
        now = cluster.quotas().get(entity, {})
    if as_json:
        print_json(_plain(entity, now))
    else:
        print(f"{entity_text(entity)}: {_limits_text(now)}")


def show_quotas(bootstrap: str, *, as_json: bool) -> None:
    with _connected(bootstrap) as cluster:
        quotas = cluster.quotas()
    found = sorted(quotas.items(), key=lambda each: _precedence(each[0]))
    if as_json:
        print_json([_plain(*each) for each in found])
    elif found:
        heads = (*(kind.upper() for kind in ENTITY_TYPES), *(name.upper() for name in _NAMES))
        rows = [_row(*each) for each in found]
        shown = [number for number in range(len(heads)) if any(row[number] for row in rows)]
        table(None, [(heads[each], "left") for each in shown], [tuple(row[each] for each in shown) for row in rows])
    else:
        print("There are no quotas; `headrace quota set --user NAME --produce 5MB` makes one")


def remove_quotas(bootstrap: str, entity: QuotaEntity, names: Sequence[str], *, as_json: bool) -> None:
    for name in names:
        if name not in _NAMES:
            raise BadArgument(f"there is no quota {name}: use {', '.join(_NAMES)}")
    with _connected(bootstrap) as cluster:
        before = cluster.quotas().get(entity, {})
        gone = {_NAMES[name].value for name in names} & set(before) if names else set(before)
        if not gone:
            raise CommandFailed(f"{entity_text(entity)} has no such quota; `headrace quota list` shows all")
        cluster.alter_quotas(entity, dict.fromkeys(gone))
    left = {name: value for name, value in before.items() if name not in gone}
    if as_json:
        print_json(_plain(entity, left))
    else:
        removed = _limits_text({name: before[name] for name in before if name in gone})
        print(f"Removed from {entity_text(entity)}: {removed}")


def _plain(entity: QuotaEntity, values: QuotaValues) -> dict[str, Any]:
    return {"entity": dict(entity), "quotas": dict(values)}


def _precedence(entity: QuotaEntity) -> tuple[Any, ...]:
    """The quotas that apply first are first: by user, then by client id, the default behind the names."""
    names = dict(entity)

    def rank(kind: str) -> tuple[int, str]:
        if kind not in names:
            return 2, ""
        name = names[kind]
        return (1, "") if name is None else (0, name)

    is_alone = next((at for at, kind in enumerate((IP, QUEUE, ACCESS_KEY, TOPIC_PREFIX), 1) if kind in names), 0)
    by_name = (QUEUE, ACCESS_KEY, TOPIC_PREFIX, USER, CLIENT_ID, CLIENT_ID_PREFIX, IP)
    return is_alone, *map(rank, by_name)


def _row(entity: QuotaEntity, values: QuotaValues) -> tuple[str, ...]:
    names = dict(entity)
    whose = (("" if kind not in names else names[kind] or _DEFAULT) for kind in ENTITY_TYPES)
    limits = (_amount(kind, values[kind.value]) if kind.value in values else "" for kind in _NAMES.values())
    return (*whose, *limits)


def _limits_text(values: QuotaValues) -> str:
    found = (f"{_SHORT.get(name, name)} {_amount(name, value)}" for name, value in values.items())
    return ", ".join(found) or "no quotas"


def _amount(kind: str, value: float) -> str:
    if kind in _BYTES:
        return f"{human_bytes(value)}/s"
    if kind == QuotaKind.STORED:
        return human_bytes(value)
    return f"{value:.4g} %" if kind == QuotaKind.REQUEST else f"{value:.4g}/s"


# -- use


def show_use(bootstrap: str, http: str, *, once: bool, every_s: float, as_json: bool) -> None:
    api = HttpApi(bootstrap, http)
    if not once and is_screen():
        _watch_use(api, every_s)
        return
    found = _use(api)
    if not any(each["used"] for each in found):
        # Clients without a quota are counted from the first question on.
        time.sleep(_WARM_UP_S)
        found = _use(api)
    if as_json:
        print_json(found)
    elif found:
        table(None, _COLUMNS, [_use_row(each) for each in found])
    else:
        print("No client has used anything in the last seconds")


def _watch_use(api: HttpApi, every_s: float) -> None:
    from rich.live import Live

    with Live(table_of(_COLUMNS, []), auto_refresh=False, screen=True) as live:
        while True:
            rows = [_use_row(each) for each in _use(api)[: max(1, live.console.height - 4)]]
            live.update(table_of(_COLUMNS, rows), refresh=True)
            time.sleep(every_s)


def _use(api: HttpApi) -> list[dict[str, Any]]:
    rows = api.get(f"/quotas/use?sort=share&order=desc&per_page={_MAX_ROWS}")["items"]
    return [each for each in rows if each["used"] or each["throttled_count"]]


_COLUMNS = [
    ("USER", "left"), ("CLIENT ID", "left"), ("WHAT", "left"), ("USES", "right"), ("LIMIT", "right"),
    ("OF IT", "right"), ("DELAYED", "right"), ("BROKERS", "left"),
]  # fmt: skip


def _use_row(each: Mapping[str, Any]) -> tuple[str, ...]:
    limit = each["limit"]
    return (
        each["user"] or "any",
        (each["client_id"] + ("*" if each["is_prefix"] else "")) or "any",
        _SHORT.get(each["quota"], each["quota"]),
        _amount(each["quota"], each["used"]),
        "" if limit is None else _amount(each["quota"], limit) + (" in all" if each["parts"] else ""),
        "" if limit is None else f"{100 * each['share']:.0f} %",
        f"{each['throttled_count']} times, {each['throttled_ms'] / 1000:.1f} s" if each["throttled_count"] else "",
        ", ".join(map(str, each["brokers"])),
    )
