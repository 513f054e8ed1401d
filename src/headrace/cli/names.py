"""Names that exist: the shell completes them, and an unknown name is answered with the nearest one.

What completes a name must be quick and must never fail: without a broker there is nothing to offer.
"""

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP

if TYPE_CHECKING:
    from headrace.wire import Cluster

_QUEUE_TYPE = "queue.type"
_NO_QUEUE = ("", "none")


def no_such(kind: str, name: str, existing: Iterable[str], listed_by: str) -> str:
    """A sentence about a name that does not exist: the nearest that does, or the command that lists them."""
    near = nearest(name, existing)
    hint = f"did you mean {near}?" if near is not None else f"`{listed_by}` shows those there are"
    return f"there is no {kind} {name}; {hint}"


def nearest(name: str, existing: Iterable[str]) -> str | None:
    """The existing name that is closest to one that does not exist, if any is close. Upper and lower case are alike."""
    from difflib import get_close_matches

    by_folded = {each.casefold(): each for each in existing if each != name}
    close = get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.7)
    return by_folded[close[0]] if close else None


def complete_topics(context: typer.Context, incomplete: str) -> list[str]:
    return _complete(context, incomplete, lambda cluster: cluster.metadata())


def complete_groups(context: typer.Context, incomplete: str) -> list[str]:
    return _complete(context, incomplete, lambda cluster: [each.name for each in cluster.groups()])


def complete_queues(context: typer.Context, incomplete: str) -> list[str]:
    def queues(cluster: "Cluster") -> Iterable[str]:
        types = cluster.one_setting(list(cluster.metadata()), _QUEUE_TYPE)
        return [name for name, kind in types.items() if kind not in _NO_QUEUE]

    return _complete(context, incomplete, queues)


def complete_users(context: typer.Context, incomplete: str) -> list[str]:
    return _complete(context, incomplete, lambda cluster: cluster.users())


def complete_operations(incomplete: str) -> list[str]:
    from headrace.model.acls import AclOperation

    names = (each.name.lower().replace("_", "-") for each in AclOperation)
    return [name for name in names if name.startswith(incomplete)]


def complete_resources(context: typer.Context, incomplete: str) -> list[str]:
    """`topic:` and its like, then the names of that kind."""
    kind, colon, name = incomplete.partition(":")
    if not colon:
        return [each for each in ("topic:", "queue:", "group:", "transaction:", "cluster") if each.startswith(kind)]
    of_kind = {
        "topic": complete_topics,
        "queue": complete_queues,
        "group": complete_groups,
        "transaction": complete_transactions,
    }.get(kind)
    return [] if of_kind is None else [f"{kind}:{each}" for each in of_kind(context, name)]


def complete_transactions(context: typer.Context, incomplete: str) -> list[str]:
    return _complete(context, incomplete, lambda cluster: cluster.list_transactions())


def complete_brokers(context: typer.Context, incomplete: str) -> list[str]:
    return _complete(context, incomplete, lambda cluster: map(str, cluster.describe().brokers))


def _complete(context: typer.Context, incomplete: str, names: "Callable[[Cluster], Iterable[str]]") -> list[str]:
    bootstrap = context.params.get("bootstrap") or os.environ.get("HEADRACE_BOOTSTRAP") or DEFAULT_BOOTSTRAP
    # An error message must never appear in the middle of a line that is being typed.
    with contextlib.suppress(Exception):
        from headrace.wire import Cluster, Timeouts

        with Cluster(bootstrap, client_id="headrace-cli", timeouts=Timeouts(1.0, 2.0, 0.0)) as cluster:
            found = [name for name in names(cluster) if name.startswith(incomplete)]
        # Internal topics are offered to those who begin to type their name.
        return sorted(name for name in found if incomplete.startswith("_") or not name.startswith("__"))
    return []
