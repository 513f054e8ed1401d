"""What a history of a queue must satisfy (invariant 16 of the faults): looked for in what workers have written down."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tests.faults.queue_work import POISON


def problems(events: Iterable[dict[str, Any]], acked: set[str], visibility_s: float) -> list[str]:
    """Everything that is wrong, in sentences. `acked` are the bodies that were sent for certain.

    A deletion that nobody heard of may have been made: that everything is deleted, the queue itself must say.
    """
    got: dict[str, list[dict[str, Any]]] = defaultdict(list)
    deleted: dict[str, float] = {}
    handed_back: dict[str, list[float]] = defaultdict(list)
    bodies_seen: set[str] = set()
    for event in events:
        match event["event"]:
            case "got":
                got[event["id"]].append(event)
                bodies_seen.add(event["body"])
            case "deleted":
                deleted[event["id"]] = min(event["at"], deleted.get(event["id"], event["at"]))
            case "back":
                handed_back[event["id"]].append(event["at"])
    found = [f"{body} was sent and nobody got it" for body in sorted(acked - bodies_seen)]
    for message_id, receives in got.items():
        receives.sort(key=lambda event: event["asked"])
        for event in receives:
            if message_id in deleted and event["asked"] > deleted[message_id]:
                late_s = event["asked"] - deleted[message_id]
                found.append(f"{event['body']} was received {late_s:.3f} s after its deletion was acknowledged")
        for first in receives:
            found += _too_early(first, receives, handed_back[message_id], visibility_s)
        counts = sorted(event["count"] for event in receives)
        if len(set(counts)) != len(counts):
            found.append(f"{receives[0]['body']} was received twice with the same count: {counts}")
    return found


def _too_early(
    first: dict[str, Any], receives: list[dict[str, Any]], handed_back: list[float], visibility_s: float
) -> list[str]:
    """Receives that came before the lease of an earlier one had ended. It began when that one was asked, or later."""
    found = []
    for later in receives:
        is_early = later["count"] > first["count"] and later["at"] < first["asked"] + visibility_s
        if is_early and not any(first["at"] <= at <= later["at"] for at in handed_back):
            found.append(
                f"{first['body']} was received again {later['at'] - first['asked']:.3f} s after a receive of "
                f"{visibility_s} s"
            )
    return found


def is_poison(body: str) -> bool:
    return body.startswith(POISON)
