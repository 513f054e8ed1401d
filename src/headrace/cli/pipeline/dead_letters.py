"""The work of `headrace pipeline dlq`."""

import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.cli.json_text import json_value
from headrace.cli.options import DEFAULT_BOOTSTRAP
from headrace.cli.output import count, print_json, table
from headrace.cli.pipeline.run import failing, load
from headrace.cli.progress import ProgressLine
from headrace.client.message import Message
from headrace.model.failure_headers import REASON
from headrace.pipelines.connection_options import ConnectionOptions
from headrace.pipelines.control.reachability import check_reached
from headrace.pipelines.control.topics import cluster_at
from headrace.pipelines.dead_letters.letter_topics import LetterTopic, letter_topics
from headrace.pipelines.dead_letters.replay import (
    ReasonSummary,
    by_reason,
    count_letters,
    read_letters,
    read_replayed,
    replay,
)

_SHOWN_CHARS = 120


def list_letters(pipeline: str, bootstrap: str | None, samples: int, *, as_json: bool) -> None:
    with failing():
        reasons = [
            (topic, _reasons(where, connection, topic, samples))
            for where, connection, topic in _topics(pipeline, bootstrap)
        ]
    if as_json:
        print_json([{"topic": topic, "reasons": [_plain(each) for each in found]} for topic, found in reasons])
        return
    for topic, found in reasons:
        total, replayed = sum(each.count for each in found), sum(each.replayed for each in found)
        print(f"{topic}: {count(total, 'dead letter')}, {replayed:,} of them sent back")
        if found:
            heads = [
                ("REASON", "left"),
                ("COUNT", "right"),
                ("SENT BACK", "right"),
                ("FIRST", "left"),
                ("LAST", "left"),
            ]
            table(None, heads, [(each.reason, each.count, each.replayed, *_times(each)) for each in found])
        for each in found:
            for letter in each.samples:
                print(f"  {'/'.join(map(str, letter.origin))}: {_shown(letter.payload)}")


def replay_letters(pipeline: str, bootstrap: str | None, reason: str | None, *, dry_run: bool, as_json: bool) -> None:
    def wanted(letter: Message) -> bool:
        return reason is None or reason.lower() in (letter.header(REASON) or "").lower()

    results: dict[str, Any] = {}
    with failing():
        for where, connection, topic in _topics(pipeline, bootstrap):
            letters = cluster_at(where, connection)
            with letters as cluster, ProgressLine("seen", total=count_letters(cluster, topic)) as progress:
                results[topic] = replay(
                    cluster,
                    topic,
                    wanted=wanted,
                    dry_run=dry_run,
                    on_progress=lambda seen, bar=progress: bar.update(seen, 0),  # type: ignore[misc]
                )
    if as_json:
        print_json({topic: asdict(each) for topic, each in results.items()})
        return
    for topic, each in results.items():
        verb = "would be sent back" if dry_run else "sent back"
        by_topic = ", ".join(f"{number:,} to {name}" for name, number in each.by_topic.items())
        print(f"{topic}: {count(each.sent, 'dead letter')} {verb}{f' ({by_topic})' if by_topic else ''}")
        for number, why in (
            (each.done_before, "were sent back before"),
            (each.skipped, "have another reason"),
            (each.without_origin, "do not say where they came from"),
        ):
            if number:
                print(f"  {number:,} {why}")


def _topics(pipeline: str, bootstrap: str | None) -> list[LetterTopic]:
    """Those of a pipeline's file, or the one that is named."""
    if not (pipeline.endswith(".toml") or Path(pipeline).is_file()):
        bootstrap = bootstrap or os.environ.get("HEADRACE_BOOTSTRAP") or DEFAULT_BOOTSTRAP
        check_reached([bootstrap])
        return [(bootstrap, (), pipeline)]
    spec = load(Path(pipeline), bootstrap).spec
    check_reached((spec.bootstrap_of(source) for source in spec.streams.values()), spec.connection)
    return letter_topics(spec)


def _reasons(bootstrap: str, connection: ConnectionOptions, topic: str, samples: int) -> list[ReasonSummary]:
    letters_at = cluster_at(bootstrap, connection)
    with letters_at as cluster, ProgressLine("read", total=count_letters(cluster, topic)) as progress:

        def letters() -> Any:
            for number, letter in enumerate(read_letters(cluster, topic), 1):
                if number % 1000 == 0:
                    progress.update(number, 0)
                yield letter

        return by_reason(letters(), read_replayed(cluster, topic), samples)


def _times(reason: ReasonSummary) -> tuple[str, str]:
    return _time(reason.first_ms), _time(reason.last_ms)


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _shown(payload: bytes | None) -> str:
    if payload is None:
        return "(no value)"
    text = payload.decode(errors="replace").replace("\n", "⏎")
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _plain(reason: ReasonSummary) -> dict[str, Any]:
    return {
        "reason": reason.reason,
        "count": reason.count,
        "replayed": reason.replayed,
        "first_ms": reason.first_ms,
        "last_ms": reason.last_ms,
        "samples": [
            {
                "origin": letter.origin,
                "offset": [letter.partition, letter.offset],
                "key": json_value(letter.key),
                "value": json_value(letter.payload),
            }
            for letter in reason.samples
        ],
    }
