"""The work of `headrace pipeline preview`."""

import json
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.output import count, print_json, say, table
from headrace.cli.pipeline.run import failing, load, quick_session
from headrace.client.message import Message
from headrace.pipelines.control.reachability import check_reached
from headrace.pipelines.control.samples import newest_messages
from headrace.pipelines.control.topics import cluster_of, matching
from headrace.pipelines.errors import NotReady
from headrace.pipelines.run.session import check_ready
from headrace.pipelines.spec.model import Spec

if TYPE_CHECKING:
    from headrace.pipelines.run.preview import Preview, SinkPreview

_CELL_CHARS = 60


def preview_file(file: Path, bootstrap: str | None, messages: int, rows: int, *, as_json: bool) -> None:
    read = load(file, bootstrap)
    with failing():
        check_ready()
        found = _messages(read.spec, messages)
    # PySpark imports pandas for tables of Arrow, which takes half a second: the JVM starts meanwhile.
    threading.Thread(target=import_module, args=("pandas",), daemon=True).start()
    started = time.monotonic()
    with failing(), quick_session(read, for_rows=True) as spark:
        from headrace.pipelines.run.preview import preview

        say(f"Spark started in {time.monotonic() - started:.1f} s; running the steps …")
        made = preview(spark, read, found, rows)
    if as_json:
        print_json(_plain(made, found))
        return
    for name, shown in made.sinks.items():
        _print(name, shown)
    for name, bad in made.bad.items():
        if bad:
            print(f"{count(bad, 'message')} of {name} would not fit:")
            for place, reason in made.samples[name]:
                print(f"  {place}: {reason}")


def _messages(spec: Spec, number: int) -> dict[str, list[Message]]:
    """The newest messages of each source, over its topics."""
    found: dict[str, list[Message]] = {}
    check_reached((spec.bootstrap_of(source) for source in spec.streams.values()), spec.connection)
    for name, source in spec.streams.items():
        with cluster_of(spec, source) as cluster:
            topics = source.all_topics
            if source.pattern is not None:
                topics = matching(source, sorted(cluster.metadata()))
            found[name] = []
            for topic in topics:
                messages = newest_messages(cluster, topic, -(-number // len(topics)))
                if messages is None:
                    raise NotReady(f"there is no topic {topic} at {cluster.bootstrap}")
                found[name] += messages
        say(f"Took the newest {count(len(found[name]), 'message')} of {', '.join(topics) or name}")
    return found


def _print(name: str, shown: "SinkPreview") -> None:
    if not shown.rows:
        print(f"{name}: no rows; its columns are {', '.join(shown.columns)}")
        return
    heads = [(column, "left") for column in shown.columns]
    table(name, heads, [tuple(_cell(row[column]) for column in shown.columns) for row in shown.rows])
    if shown.more:
        print("… more rows; --rows shows more of them")


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _CELL_CHARS else f"{text[:_CELL_CHARS]}…"


def _plain(made: "Preview", messages: dict[str, list[Message]]) -> dict[str, Any]:
    return {
        "sources": {
            name: {
                "messages": len(found),
                "bad": made.bad.get(name, 0),
                "samples": [{"at": place, "reason": reason} for place, reason in made.samples.get(name, [])],
            }
            for name, found in messages.items()
        },
        "sinks": {name: {"rows": shown.rows, "more": shown.more} for name, shown in made.sinks.items()},
    }
