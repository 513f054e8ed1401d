"""The work of `headrace cluster upgrade`."""

import sys
from collections.abc import Mapping

import typer

from headrace.cli.cluster.view import connected
from headrace.cli.errors import CommandFailed
from headrace.cli.output import table
from headrace.model.features import FEATURE, LEVELS
from headrace.wire import Cluster, Refused, WireError


def upgrade(bootstrap: str, *, dry_run: bool, yes: bool) -> None:
    """Raise the cluster's feature level to the highest that every broker knows, and say what that turns on."""
    with connected(bootstrap) as cluster:
        current = cluster.feature(FEATURE).finalized
        if not current:
            raise CommandFailed(f"the cluster at {bootstrap} has no feature levels: is it a Headrace of 0.2 or later?")
        known = _known_levels(cluster)
        _show(known)
        wanted = min((level for level in known.values() if level is not None), default=current)
        if wanted <= current:
            print(_why_not_higher(current, known))
            return
        print(f"Feature level {current} can be raised to {wanted}. It turns on: {_brings(current, wanted)}.")
        print("It cannot be lowered again, and brokers of earlier versions will not start on this data.")
        if dry_run:
            return
        if not yes and sys.stdin.isatty():
            typer.confirm(f"Raise it to {wanted}?", abort=True)
        try:
            cluster.upgrade_feature(FEATURE, wanted)
        except Refused as refused:
            raise CommandFailed(str(refused)) from None
        print(f"The feature level is {wanted}.")


def _known_levels(cluster: Cluster) -> dict[int, int | None]:
    """The highest level that each broker knows; None for one that does not answer."""
    levels: dict[int, int | None] = {}
    for broker_id, node in cluster.describe().brokers.items():
        try:
            # A version before 0.2 does not tell of levels: it knows the first.
            levels[broker_id] = cluster.feature(FEATURE, node.endpoint).highest or LEVELS[0].number
        except WireError:
            levels[broker_id] = None
    return levels


def _show(known: Mapping[int, int | None]) -> None:
    rows: list[tuple[object, ...]] = [
        (broker_id, "does not answer" if level is None else f"up to {level}") for broker_id, level in known.items()
    ]
    table(None, [("BROKER", "right"), ("FEATURE LEVELS", "left")], rows)


def _why_not_higher(current: int, known: Mapping[int, int | None]) -> str:
    behind = [broker_id for broker_id, level in known.items() if level == current]
    if max((level or 0 for level in known.values()), default=0) > current:
        brokers = ", ".join(map(str, behind))
        return f"The feature level stays {current}: install the new version on broker {brokers} first, and restart it."
    return f"The feature level is {current}, the highest that this version of Headrace knows. There is nothing to do."


def _brings(current: int, wanted: int) -> str:
    return "; ".join(level.brings for level in LEVELS if current < level.number <= wanted) or "newer features"
