"""A Kafka Streams application with `group.protocol=streams` (KIP-1071), under kills, and kafka-streams-groups.

Two processes of `streams/WordCount.java` count the words of a topic that is written to all the while, exactly once and
with standbys. One of them is killed and started again, then the broker is. Each word must end up counted as often as it
was written, and each of its counts must have been written once, in order.
"""

import signal
import struct
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from apache import HERE, Java, Unavailable, java
from confluent_kafka import Consumer, Producer, TopicPartition
from report import Report, expect
from tools import Tools

from headrace.testing.process import BrokerProcess

_POM = HERE / "streams" / "pom.xml"
_SOURCE = HERE / "streams" / "WordCount.java"
_COMMAND = "org.apache.kafka.tools.streams.StreamsGroupCommand"
_GROUP, _LINES, _COUNTS = "word-count", "lines", "counts"
_PARTITIONS = 4
_PATIENCE_S = 120.0
_MORE = 500
"""Counts that must come before the next kill."""
_PAUSE_S = 0.05
_SETTINGS = {
    "group.streams.min.session.timeout.ms": 6_000,
    "group.streams.session.timeout.ms": 6_000,
    "group.streams.min.heartbeat.interval.ms": 500,
    "group.streams.heartbeat.interval.ms": 500,
    "group.streams.initial.rebalance.delay.ms": 1_000,
}


def check_streams(report: Report, scratch: Path) -> None:
    try:
        kafka = java(_POM)
    except Unavailable as reason:
        print(f"Kafka Streams is not checked: {reason}.")
        return
    print(f"Kafka Streams {kafka.version}, group.protocol=streams", flush=True)
    with BrokerProcess(scratch / "streams-data", settings=_SETTINGS) as broker:
        tools = Tools(kafka, broker.bootstrap)
        with report.check("kafka-configs sets the standbys of a streams group"):
            _prepare(tools)
        counts = _Counts(broker.bootstrap)
        with _Writing(broker.bootstrap) as writing:
            first, second = (_Instance(kafka, broker.bootstrap, scratch / f"s{at}", 7100 + at) for at in (1, 2))
            try:
                _check_running(report, kafka, tools, broker, counts, (first, second))
            finally:
                with report.check("Kafka Streams counts every word exactly once, through all kills"):
                    counts.check(writing.end())
                for instance in (first, second):
                    instance.stop()
        _check_stopped(report, tools)


def _prepare(tools: Tools) -> None:
    for topic in (_LINES, _COUNTS):
        tools.topics("--create", "--topic", topic, "--partitions", str(_PARTITIONS))
    which = ("--entity-type", "groups", "--entity-name", _GROUP)
    tools.configs("--alter", *which, "--add-config", "streams.num.standby.replicas=1")
    shown = tools.configs("--describe", *which).out
    expect("streams.num.standby.replicas=1" in shown, shown)


def _check_running(
    report: Report,
    kafka: Java,
    tools: Tools,
    broker: BrokerProcess,
    counts: "_Counts",
    instances: "tuple[_Instance, _Instance]",
) -> None:
    with report.check("Kafka Streams runs, its internal topics made by the broker"):
        for instance in instances:
            instance.start()
        counts.wait_for_more()
        _wait(lambda: _state(tools) == "Stable", lambda: tools.ok(_COMMAND, "--describe", "--group", _GROUP).out)
        topics = tools.topics("--list").lines
        expect({f"{_GROUP}-words-repartition", f"{_GROUP}-counted-changelog"} <= set(topics), topics)
    with report.check("kafka-streams-groups lists and describes a running application"):
        _check_described(tools)
    with report.check("every process of the application knows where all stores are"):
        _wait(lambda: instances[0].asks_hosts() == 2, lambda: instances[0].said)
    with report.check("Kafka Streams goes on after a kill -9 of one of two processes"):
        instances[0].kill()
        counts.wait_for_more()
        # The other one has everything now: four tasks of each of two subtopologies.
        _wait(lambda: len(_tasks(tools)) == 2 and sum(_tasks(tools).values()) == 8, lambda: _tasks(tools))
    with report.check("a process that was killed comes back"):
        instances[0].start()
        counts.wait_for_more()
        _wait(lambda: sorted(_tasks(tools).values()) == [2, 2, 2, 2], lambda: _tasks(tools))
    with report.check("Kafka Streams goes on after a kill -9 of the broker"):
        broker.restart(kill=True)
        counts.wait_for_more()
        _wait(lambda: sorted(_tasks(tools).values()) == [2, 2, 2, 2], lambda: _tasks(tools))
    with report.check("Kafka Streams goes on after a kill -9 of a process and the broker at once"):
        instances[1].kill()
        broker.restart(kill=True)
        instances[1].start()
        counts.wait_for_more()
        _wait(lambda: sorted(_tasks(tools).values()) == [2, 2, 2, 2], lambda: _tasks(tools))
        counts.wait_for_more()


def _check_described(tools: Tools) -> None:
    listed = tools.ok(_COMMAND, "--list", "--state")
    expect(any(line.split() == [_GROUP, "Stable"] for line in listed.lines), listed)
    expect(tools.ok(_COMMAND, "--list", "--state", "Empty").out.find(_GROUP) < 0, "an empty group is listed")
    members = tools.ok(_COMMAND, "--describe", "--group", _GROUP, "--members", "--verbose")
    expect(members.out.count("StreamThread") >= 4 or len(members.lines) >= 4, members)
    expect("ACTIVE:" in members.out and "STANDBY:" in members.out, members)
    offsets = tools.ok(_COMMAND, "--describe", "--group", _GROUP)
    for topic in (_LINES, f"{_GROUP}-words-repartition"):
        expect(offsets.out.count(f" {topic} ") >= _PARTITIONS, offsets)


def _check_stopped(report: Report, tools: Tools) -> None:
    with report.check("kafka-streams-groups deletes an application that has stopped, with its internal topics"):
        _wait(lambda: _state(tools) == "Empty", lambda: _state(tools))
        tools.ok(_COMMAND, "--delete", "--group", _GROUP, "--delete-all-internal-topics")
        expect(_GROUP not in tools.ok(_COMMAND, "--list").out, "it is still there")


def _state(tools: Tools) -> str:
    """The group's state: the word behind the coordinator's address."""
    for line in tools.ok(_COMMAND, "--describe", "--group", _GROUP, "--state").lines:
        words = line.split()
        if words[:1] == [_GROUP]:
            return next((word for word in words if word in ("Stable", "Empty", "Reconciling", "Assigning")), line)
    return ""


def _tasks(tools: Tools) -> dict[str, int]:
    """How many active tasks each member has."""
    found: dict[str, int] = {}
    ran = tools.ok(_COMMAND, "--describe", "--group", _GROUP, "--members")
    for line in ran.lines:
        words = line.split()
        if words[:1] == [_GROUP]:
            active = line.partition("ACTIVE:")[2].partition("STANDBY:")[0]
            found[words[1]] = sum(part.count(",") + 1 for part in active.split(";") if ":" in part)
    return found


def _wait(holds: Callable[[], bool], otherwise: Callable[[], object]) -> None:
    end_s = time.monotonic() + _PATIENCE_S
    while not holds():
        expect(time.monotonic() < end_s, otherwise())
        time.sleep(_PAUSE_S)


class _Instance:
    """A process of the application, with the same directory for its state each time it is started."""

    def __init__(self, kafka: Java, bootstrap: str, state_dir: Path, port: int) -> None:
        self._command = kafka.command(_SOURCE, bootstrap, str(state_dir), str(port))
        self._log = state_dir.with_suffix(".log")
        self._process: subprocess.Popen[str] | None = None
        self.said: list[str] = []

    def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()

    def _listen(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self.said.extend(line.rstrip() for line in process.stdout)

    def asks_hosts(self) -> int:
        """How many processes it knows; 0 if it does not say."""
        assert self._process is not None
        assert self._process.stdin is not None
        before = len(self.said)
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        _wait(lambda: len(self.said) > before, lambda: self.said)
        return int(self.said[-1].partition("hosts ")[2] or 0)

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(_PATIENCE_S)

    def stop(self) -> None:
        """Let it leave the group."""
        if self._process is not None and self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.kill()


class _Writing:
    """Writes lines until it is told to end, and knows how often it has written each word."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
        self._ends = threading.Event()
        self._words: Counter[str] = Counter()
        self._failed: list[str] = []
        self._thread = threading.Thread(target=self._write, daemon=True)

    def _write(self) -> None:
        start = 0
        while not self._ends.wait(_PAUSE_S):
            start += 10
            for at in range(start, start + 10):
                words = [f"w{at % 31}", f"v{at % 7}", "all"]
                self._words.update(words)
                self._producer.produce(_LINES, " ".join(words), on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(str(error))

    def end(self) -> Counter[str]:
        self._ends.set()
        self._thread.join(_PATIENCE_S)
        expect(self._producer.flush(_PATIENCE_S) == 0, "lines were not written")
        expect(not self._failed, self._failed[:3])
        return self._words

    def __enter__(self) -> "_Writing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()


class _Counts:
    """What the application has written and committed: the counts of each word in the order in which they came."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "counts-reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(_COUNTS, at, 0) for at in range(_PARTITIONS)])
        self._seen: dict[str, list[int]] = defaultdict(list)
        self._total = 0

    def _poll(self) -> None:
        for message in self._consumer.consume(500, 0.2):
            if message.error() is None:
                (count,) = struct.unpack(">q", message.value())
                self._seen[message.key().decode()].append(count)
                self._total += 1

    def wait_for(self, total: int) -> None:
        end_s = time.monotonic() + _PATIENCE_S
        while self._total < total:
            expect(time.monotonic() < end_s, f"{self._total} of {total} counts came")
            self._poll()

    def wait_for_more(self) -> None:
        """Wait until more was counted than was on its way."""
        self._poll()
        self.wait_for(self._total + _MORE)

    def check(self, words: Counter[str]) -> None:
        self.wait_for(words.total())
        self._poll()
        wrong = {word: counts for word, counts in self._seen.items() if counts != list(range(1, words[word] + 1))}
        expect(not wrong, {word: counts[-20:] for word, counts in list(wrong.items())[:3]})
        expect(self._seen.keys() == words.keys(), words.keys() - self._seen.keys())
