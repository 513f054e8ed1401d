"""Replays dead letters at the request of a broker, in a thread of its own, one request at a time.

It is the replay of `headrace pipeline dlq replay`: each letter exactly once, also if it is interrupted and repeated, or
if two processes do it at the same time.
"""

import logging
import threading
from collections.abc import Callable

from headrace.client.message import Message
from headrace.model.errors import HeadraceError
from headrace.model.failure_headers import REASON
from headrace.model.pipeline_report import MAX_ERROR_CHARS, ReplayCommand, ReplayReport
from headrace.pipelines.control.topics import cluster_at
from headrace.pipelines.dead_letters.letter_topics import LetterTopic, letter_topics
from headrace.pipelines.dead_letters.replay import count_letters, replay
from headrace.pipelines.errors import NotReady, PipelineFailed
from headrace.pipelines.spec.model import Spec

_log = logging.getLogger("headrace.pipelines")
_END_WAIT_S = 10.0


class LetterReplays:
    """Carries out replays, and reports the last one."""

    def __init__(self, spec: Spec, on_change: Callable[[], None] = lambda: None) -> None:
        """`on_change` is called when a replay begins and ends."""
        self._spec = spec
        self._on_change = on_change
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self.report: ReplayReport | None = None

    def ask(self, command: ReplayCommand) -> None:
        """Begin a replay. A command that was begun before, or that arrives during another one, is ignored."""
        is_known = self.report is not None and self.report.id == command.id
        if is_known or (self._thread is not None and self._thread.is_alive()):
            return
        self.report = ReplayReport(id=command.id, state="running")
        self._thread = threading.Thread(target=self._run, args=(command,), name="headrace-replay", daemon=True)
        self._thread.start()
        self._on_change()

    def close(self) -> None:
        """Stop after the current transaction; the rest can be replayed later."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(_END_WAIT_S)

    def _run(self, command: ReplayCommand) -> None:
        seen = sent = total = 0

        def progress(letters: int) -> None:
            self.report = ReplayReport(id=command.id, state="running", seen=seen + letters, total=total, sent=sent)
            if self._closing.is_set():
                raise PipelineFailed("the process that replayed them has ended")

        try:
            topics = letter_topics(self._spec)
            counts = {topic: _count(topic) for topic in topics}
            total = sum(counts.values())
            for topic, letters in counts.items():
                if letters:
                    sent += self._replay(topic, command.reason, progress)
                    seen += letters
        except HeadraceError as error:
            problem = str(error)[:MAX_ERROR_CHARS]
            self.report = ReplayReport(id=command.id, state="failed", seen=seen, total=total, sent=sent, error=problem)
            _log.warning("the replay of dead letters failed: %s", error)
        else:
            self.report = ReplayReport(id=command.id, state="done", seen=total, total=total, sent=sent)
            _log.info("%d dead letters were replayed", sent)
        self._on_change()

    @staticmethod
    def _replay(topic: LetterTopic, reason: str, progress: Callable[[int], None]) -> int:
        def wanted(letter: Message) -> bool:
            return reason.lower() in (letter.header(REASON) or "").lower()

        bootstrap, connection, name = topic
        with cluster_at(bootstrap, connection) as cluster:
            return replay(cluster, name, wanted=wanted, on_progress=progress).sent


def _count(topic: LetterTopic) -> int:
    bootstrap, connection, name = topic
    with cluster_at(bootstrap, connection) as cluster:
        try:
            return count_letters(cluster, name)
        except NotReady:
            return 0  # nothing was dead-lettered yet
