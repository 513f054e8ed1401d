"""The work of `headrace pipeline archive` and `replay`."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.errors import CommandFailed
from headrace.cli.names import no_such
from headrace.cli.output import count, human_bytes, human_duration, print_json, say
from headrace.cli.pipeline.run import failing
from headrace.cli.progress import ProgressLine
from headrace.wire import Cluster, TopicNotFound, WireError

if TYPE_CHECKING:
    from headrace.pipelines.archive.archiver import ArchiveOptions
    from headrace.pipelines.archive.replay import ReplayFilter


def archive_topic(options: "ArchiveOptions", bootstrap: str, *, once: bool, as_json: bool) -> None:
    from headrace.pipelines.archive.archiver import ArchiveProgress, Archiver
    from headrace.pipelines.control.reachability import check_reached

    with failing():
        check_reached([bootstrap])
    started = time.monotonic()
    with (
        _stopping() as stop,
        Cluster(bootstrap, client_id="headrace-archive") as cluster,
        ProgressLine("archived", shown=not as_json) as bar,
    ):

        def show(progress: ArchiveProgress) -> None:
            bar.update(progress.records, progress.size_bytes)

        try:
            with Archiver(cluster, options, say=say, on_progress=show) as archiver:
                if once:
                    archiver.run_once(stop)
                else:
                    say(f"Archiving {options.topic} to {options.path}; Ctrl-C stops it")
                    archiver.run(stop)
        except TopicNotFound:
            raise CommandFailed(no_such("topic", options.topic, cluster.metadata(), "headrace topic list")) from None
        except (WireError, OSError) as error:
            raise CommandFailed(str(error)) from None
    done = archiver.progress
    if as_json:
        print_json({"topic": options.topic, "records": done.records, "commits": done.commits, "behind": done.behind})
        return
    took_s = time.monotonic() - started
    print(
        f"Archived {count(done.records, 'record')} of {options.topic} to {options.path} in {human_duration(took_s)} "
        f"({human_bytes(done.size_bytes)} of Parquet)"
        + (f"; {count(done.behind, 'offset')} to go" if done.behind else "")
    )


def replay_archive(source: Path, topic: str, wanted: "ReplayFilter", bootstrap: str, *, as_json: bool) -> None:
    from headrace.pipelines.archive.layout import read_archive
    from headrace.pipelines.archive.replay import replay
    from headrace.pipelines.control.reachability import check_reached

    view = read_archive(source)
    with failing():
        check_reached([bootstrap])
    with Cluster(bootstrap, client_id="headrace-replay") as cluster, ProgressLine("replayed", shown=not as_json) as bar:
        try:
            done = replay(
                cluster, view, topic, wanted, on_progress=lambda each: bar.update(each.records, each.size_bytes)
            )
        except (WireError, OSError) as error:
            raise CommandFailed(str(error)) from None
    if as_json:
        print_json({"topic": topic, "records": done.records})
    else:
        print(f"Wrote {count(done.records, 'record')} of {view.topic} from {source} to {topic}")


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set: work in progress is finished first. The second signal ends at once."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def hear(number: int, frame: object) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, hear)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
