"""The work of `headrace demo`: parts that stand on their own, with a broker, a folder and a time of their own.

A part that cannot run here says why in one line; one that fails says so, and the next begins. The processes and the
folder are gone at the end, however the tour ends.
"""

import logging
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from headrace.cli.demo.cluster import check_cluster_ready, show_failover
from headrace.cli.demo.output import DemoOutput
from headrace.cli.demo.pipeline import show_pipeline
from headrace.cli.demo.processes import TourBroker
from headrace.cli.demo.topics import show_queue, show_topics
from headrace.cli.errors import CommandFailed
from headrace.cli.profile import forget_connection
from headrace.model.errors import HeadraceError
from headrace.model.extras import missing_extra
from headrace.pipelines.run.session import check_ready


class DemoPart(NamedTuple):
    title: str
    show: Callable[[], None]
    check: Callable[[], None] = lambda: None
    """Raises `HeadraceError` where the part cannot be shown, with what is missing."""


def tour(orders: int, keep: Path | None) -> None:
    started_s = time.monotonic()
    forget_connection()
    voice = DemoOutput()
    # A broker that is killed on purpose is reported by librdkafka, between the tour's own lines.
    logging.getLogger("headrace.client").addHandler(logging.NullHandler())
    with _ended_by_signals(), _folder(keep) as folder, _SharedBroker(voice, folder) as single:
        parts = [
            DemoPart("A topic that survives a crash", lambda: show_topics(voice, single.broker, single.bootstrap())),
            DemoPart("A queue with retries and a dead letter", lambda: show_queue(voice, single.bootstrap())),
            DemoPart("Three brokers, one of which dies", lambda: show_failover(voice, folder), check_cluster_ready),
            DemoPart(
                "A pipeline on Spark",
                lambda: show_pipeline(voice, single.bootstrap(), orders, folder),
                check_ready,
            ),
        ]
        failed = show_parts(voice, parts)
    took = f"The tour took {time.monotonic() - started_s:.0f} seconds."
    if failed:
        raise CommandFailed(f"{took} Not everything worked: part {', '.join(map(str, failed))} failed, see above")
    voice.say(f"\n{took} Go on with: headrace serve · headrace topic create · headrace queue create · headrace --help")
    if keep:
        voice.say(f"What it wrote is in {keep}.")


def show_parts(voice: DemoOutput, parts: list[DemoPart]) -> list[int]:
    """Show one after the other, whatever becomes of each; the numbers of those that failed."""
    failed = []
    for number, part in enumerate(parts, start=1):
        with voice.waiting_for("working"):
            if not _show(voice, number, part):
                failed.append(number)
    return failed


def _show(voice: DemoOutput, number: int, part: DemoPart) -> bool:
    """Whether it did not fail."""
    try:
        part.check()
    except HeadraceError as error:
        voice.say(f"{number}. {part.title}: left out, {error}")
        return True
    voice.say(f"{number}. {part.title}")
    try:
        part.show()
    except (HeadraceError, OSError, ImportError) as error:
        voice.say(f"   This part failed: {missing_extra(error) or error}")
        return False
    return True


class _SharedBroker:
    """The broker that the parts share. It starts with the first that asks for it, and again if it has died."""

    def __init__(self, voice: DemoOutput, folder: Path) -> None:
        self.broker = TourBroker(folder)
        self._voice = voice
        self._bootstrap = ""

    def bootstrap(self) -> str:
        if not self.broker.is_running:
            with self._voice.waiting_for("a broker"):
                self._bootstrap = self.broker.start()
            self._voice.say(f"   A broker is running on {self._bootstrap}: `headrace serve` is all it takes.")
        return self._bootstrap

    def __enter__(self) -> "_SharedBroker":
        return self

    def __exit__(self, *_: object) -> None:
        with self._voice.waiting_for("the broker to stop"):
            self.broker.stop()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and a lost terminal end the tour as Ctrl-C does: everything is cleaned up."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGHUP):
            stack.callback(signal.signal, number, signal.signal(number, interrupt))
        yield


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="headrace-demo-", ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    if keep.exists() and any(keep.iterdir()):
        raise CommandFailed(f"{keep} is not empty: name a folder that is new")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.absolute()
