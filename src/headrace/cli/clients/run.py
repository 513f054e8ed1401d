"""The work of `headrace clients`: clients by the HTTP API, subscriptions by Kafka's."""

from typing import Any
from urllib.parse import quote

from headrace.cli.cluster.view import connected
from headrace.cli.errors import CommandFailed
from headrace.cli.http_api import HttpApi
from headrace.cli.output import human_bytes, human_duration, print_json, table
from headrace.config.client_metrics import CLIENT_METRICS_SETTINGS
from headrace.wire import ConfigResource, Refused

_PER_PAGE = 500


def show_clients(bootstrap: str, http: str, *, as_json: bool) -> None:
    found = _pages(HttpApi(bootstrap, http), "/clients")
    if as_json:
        print_json(found)
        return
    if not found:
        print("No client is connected over Kafka's protocol")
        return
    heads = (
        "CLIENT",
        "SOFTWARE",
        "ADDRESS",
        "USER",
        "LISTENER",
        "CONNECTIONS",
        "REQUESTS",
        "RECEIVED",
        "SENT",
        "BROKERS",
    )
    table(None, [(head, "left") for head in heads], [_connected_row(each) for each in found])


def show_pushing_clients(bootstrap: str, http: str, *, as_json: bool) -> None:
    found = _pushing(HttpApi(bootstrap, http))
    if as_json:
        print_json(found)
    elif found:
        heads = ("CLIENT", "SOFTWARE", "ADDRESS", "BROKER", "PUSHES", "VALUES", "PUSHED", "SEEN", "INSTANCE ID")
        columns = [(head, "left") for head in heads]
        table(None, columns, [_row(each) for each in found])
    else:
        print("No client has asked which metrics to push; `headrace clients subscribe --help` says which do")


def show_client(bootstrap: str, http: str, client: str, *, as_json: bool) -> None:
    api = HttpApi(bootstrap, http)
    found = api.get(f"/client-metrics/{quote(_instance_id(api, client), safe='')}")
    if as_json:
        print_json(found)
        return
    rows = [
        (each["name"], ", ".join(f"{name}={value}" for name, value in each["attributes"].items()), _number(each))
        for each in found["metrics"]
    ]
    table(None, [("METRIC", "left"), ("LABELS", "left"), ("VALUE", "right")], rows)


def show_subscriptions(bootstrap: str, http: str, *, as_json: bool) -> None:
    found = HttpApi(bootstrap, http).get("/client-subscriptions")
    if as_json:
        print_json(found)
        return
    rows = [
        (each["name"], ", ".join(each["metrics"]), human_duration(each["interval_ms"] / 1000), ", ".join(each["match"]))
        for each in found
    ]
    table(None, [(head, "left") for head in ("NAME", "METRICS", "EVERY", "MATCH")], rows)


def change_subscription(bootstrap: str, name: str, metrics: str, interval_ms: int | None, match: list[str]) -> None:
    interval = None if interval_ms is None else str(interval_ms)
    changes = {"metrics": metrics, "interval.ms": interval, "match": ",".join(match) or None}
    _alter(bootstrap, name, changes)
    print(f"Clients are asked for {metrics} by the subscription {name}")


def delete_subscription(bootstrap: str, name: str) -> None:
    with connected(bootstrap) as cluster:
        known = cluster.settings_of(ConfigResource.CLIENT_METRICS, name)
    if all(each.source == "default" for each in known):
        raise CommandFailed(f"there is no subscription {name}; `headrace clients subscriptions` lists them")
    _alter(bootstrap, name, dict.fromkeys(CLIENT_METRICS_SETTINGS))
    print(f"The subscription {name} is deleted")


def _alter(bootstrap: str, name: str, changes: dict[str, str | None]) -> None:
    with connected(bootstrap) as cluster:
        try:
            cluster.alter_settings(ConfigResource.CLIENT_METRICS, name, changes)
        except Refused as error:
            raise CommandFailed(f"nothing was changed: {str(error).partition(': ')[2] or error}") from None


def _pushing(api: HttpApi) -> list[dict[str, Any]]:
    return _pages(api, "/client-metrics")


def _pages(api: HttpApi, path: str) -> list[dict[str, Any]]:
    """All items of a list."""
    found: list[dict[str, Any]] = []
    page = 1
    while True:
        answer = api.get(f"{path}?per_page={_PER_PAGE}&page={page}")
        found += answer["items"]
        if len(found) >= answer["total"] or not answer["items"]:
            return found
        page += 1


def _instance_id(api: HttpApi, client: str) -> str:
    """The instance id of a client that is named by that or by its client id."""
    known = _pushing(api)
    if any(each["client_instance_id"] == client for each in known):
        return client
    of_name = [each["client_instance_id"] for each in known if each["client_id"] == client]
    if not of_name:
        raise CommandFailed(
            f"no client {client} has pushed lately; `headrace clients list --metrics` shows those that have"
        )
    if len(of_name) > 1:
        raise CommandFailed(f"{len(of_name)} clients have the client id {client}: name one of {', '.join(of_name)}")
    return str(of_name[0])


def _connected_row(each: dict[str, Any]) -> tuple[str, ...]:
    return (
        each["client_id"],
        each["software"],
        each["address"],
        each["principal"],
        each["listener"],
        f"{each['connections']:,}",
        f"{each['requests']:,}",
        human_bytes(each["received_bytes"]),
        human_bytes(each["sent_bytes"]),
        ", ".join(map(str, each["brokers"])),
    )


def _row(each: dict[str, Any]) -> tuple[str, ...]:
    return (
        each["client_id"],
        each["software"],
        each["address"],
        str(each["broker_id"]),
        str(each["pushes"]),
        str(each["values"]),
        human_bytes(each["pushed_bytes"]),
        f"{human_duration(each['heard_ms_ago'] / 1000)} ago",
        each["client_instance_id"],
    )


def _number(each: dict[str, Any]) -> str:
    return f"{each['value']:,.6g} {each['unit']}".rstrip()
