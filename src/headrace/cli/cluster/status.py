"""The work of `headrace cluster status`."""

import sys
import time
from typing import TYPE_CHECKING, Any

from headrace.cli.cluster.view import BrokerView, ClusterView, connected, look, named
from headrace.cli.errors import CommandFailed
from headrace.cli.output import count, human_bytes, print_json, table_of
from headrace.wire import Partition

if TYPE_CHECKING:
    from rich.console import Group

WELL, DEGRADED, NOT_SERVING = 0, 1, 3
_SHOWN = 10
_COLOURS = {"active": "green", "draining": "cyan", "starting": "yellow", "away": "red", "unreachable": "red"}


def show_status(bootstrap: str, *, as_json: bool) -> int:
    """Print what there is; the exit code that says how it is."""
    with connected(bootstrap) as cluster:
        view = look(cluster)
    if as_json:
        print_json(as_dict(view))
    else:
        from rich.console import Console

        Console(width=None if sys.stdout.isatty() else 200, highlight=False).print(rendered(view))
    return exit_code(view)


def watch_status(bootstrap: str, every_s: float) -> None:
    """Show the status repeatedly, until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(highlight=False), auto_refresh=False, screen=sys.stdout.isatty()) as live:
        while True:
            try:
                with connected(bootstrap) as cluster:
                    shown: Any = rendered(look(cluster))
            except CommandFailed as failure:
                shown = Text(str(failure), style="red")
            live.update(shown, refresh=True)
            time.sleep(every_s)


def exit_code(view: ClusterView) -> int:
    if not view.is_serving:
        return NOT_SERVING
    return WELL if view.is_well else DEGRADED


def as_dict(view: ClusterView) -> dict[str, Any]:
    def partitions(them: tuple[Partition, ...]) -> list[list[Any]]:
        return [list(each) for each in them]

    return {
        "cluster_id": view.cluster_id,
        "controller": view.controller,
        "feature_level": view.level.finalized or None,
        "is_serving": view.is_serving,
        "is_well": view.is_well,
        "brokers": [
            {
                "broker": each.broker_id,
                "address": each.address,
                "rack": each.rack,
                "state": each.state,
                "leads": each.leads,
                "hosts": each.hosts,
                "size_bytes": each.size_bytes,
                "usable_bytes": each.usable_bytes,
                "has_failed_disk": each.has_failed_disk,
            }
            for each in view.brokers
        ],
        "topics": view.topics,
        "partitions": view.partitions,
        "offline": partitions(view.offline),
        "below_min_isr": partitions(view.below_min_isr),
        "under_replicated": partitions(view.under_replicated),
        "not_led_by_preferred": partitions(view.away_from_preferred),
        "reassigning": [
            {
                "topic": topic,
                "partition": index,
                "replicas": list(each.replicas),
                "adding": list(each.adding),
                "removing": list(each.removing),
            }
            for (topic, index), each in view.reassigning.items()
        ],
    }


def rendered(view: ClusterView) -> "Group":
    from rich.console import Group
    from rich.text import Text

    controller = f"broker {view.controller}" if view.controller >= 0 else "no broker"
    head = f"Cluster {view.cluster_id}, controlled by {controller}: {count(len(view.brokers), 'broker')}, "
    head += f"{count(view.topics, 'topic')}, {count(view.partitions, 'partition')}\n"
    columns = [("BROKER", "right"), ("ADDRESS", "left"), ("RACK", "left"), ("STATE", "left"), ("LEADS", "right")]
    columns += [("HOSTS", "right"), ("STORED", "right"), ("FREE", "right")]
    rows = [_broker_row(each) for each in view.brokers]
    return Group(Text(head), table_of(columns, rows), Text(), *_findings(view))


def _broker_row(each: BrokerView) -> tuple[Any, ...]:
    from rich.text import Text

    def size(number: int | None) -> str:
        return "?" if number is None else human_bytes(number)

    state = Text(each.state, style=_COLOURS[each.state])
    if each.has_failed_disk:
        state = Text("disk failed", style="red")
    stored, usable = size(each.size_bytes), size(each.usable_bytes)
    return each.broker_id, each.address, each.rack or "-", state, each.leads, each.hosts, stored, usable


def _findings(view: ClusterView) -> list[Any]:
    """The problems of a cluster, worst first, or one line if there are none."""
    from rich.text import Text

    lines = []
    if view.controller < 0:
        lines.append(Text("No broker is controller: is etcd there?", style="red"))
    for partitions, what, style in (
        (view.offline, "cannot be read or written: no broker that has all of it is there", "red"),
        (view.below_min_isr, "refuse acks=all: fewer replicas in sync than min.insync.replicas", "red"),
        (view.under_replicated, "not all replicas are in sync", "yellow"),
        (view.away_from_preferred, "another than the first replica leads; `headrace cluster rebalance`", "dim"),
    ):
        if partitions:
            shown = ", ".join(map(named, partitions[:_SHOWN]))
            more = f" and {len(partitions) - _SHOWN:,} more" if len(partitions) > _SHOWN else ""
            lines.append(Text(f"{count(len(partitions), 'partition')}: {what}: {shown}{more}", style=style))
    if view.reassigning:
        moving = ", ".join(map(named, list(view.reassigning)[:_SHOWN]))
        lines.append(Text(f"{count(len(view.reassigning), 'partition')} being reassigned: {moving}", style="cyan"))
    for each in view.brokers:
        if each.state in ("away", "unreachable"):
            lines.append(Text(f"Broker {each.broker_id} is {each.state}.", style="red"))
    if 0 < view.level.finalized < view.level.highest:
        lines.append(
            Text(
                f"The feature level is {view.level.finalized} and can be {view.level.highest} once every broker runs "
                "the new version; `headrace cluster upgrade`",
                style="dim",
            )
        )
    if view.is_well:
        lines.append(Text("All partitions are led, and all of their replicas are in sync.", style="green"))
    return lines
