"""Consumer groups of real clients: joining, committing, leaving, crashing, and a broker that is killed meanwhile."""

import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from typing import IO

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from . import raw_client
from .group_clients import QUICK, TIMEOUT_S, consumer, group, produce, read, until
from .subject import Subject


def test_a_group_goes_on_where_it_was_after_a_kill(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    produce(broker.bootstrap, "t", range(100))
    with closing(consumer(broker.bootstrap, "g")) as one:
        one.subscribe(["t"])
        assert sorted(read(one, 100)) == list(range(100))
        one.commit(asynchronous=False)
    broker.kill()
    broker.start()
    produce(broker.bootstrap, "t", range(100, 120))
    with closing(consumer(broker.bootstrap, "g")) as one:
        one.subscribe(["t"])
        assert sorted(read(one, 20)) == list(range(100, 120))


def test_commits_carry_metadata_and_need_no_membership(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    produce(broker.bootstrap, "t", range(8))
    with closing(consumer(broker.bootstrap, "loner")) as one:
        one.commit(offsets=[TopicPartition("t", 2, 1, "half way: ½")], asynchronous=False)
    broker.kill()
    broker.start()
    with closing(consumer(broker.bootstrap, "loner")) as one:
        (found,) = one.committed([TopicPartition("t", 2)], timeout=TIMEOUT_S)
        assert (found.offset, found.metadata) == (1, "half way: ½")
        (none,) = one.committed([TopicPartition("t", 3)], timeout=TIMEOUT_S)
        assert none.offset < 0


class Members:
    """Consumers of one group in threads of their own, as applications have them. Records who owns what, and commits."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: object) -> None:
        self.bootstrap, self.group, self.topic, self.settings = bootstrap, group, topic, settings
        self.seen: Counter[int] = Counter()
        self.owned: dict[str, set[int]] = {}
        self.failures: list[BaseException] = []
        self.lock = threading.Lock()
        self._threads: dict[str, tuple[threading.Thread, threading.Event]] = {}

    def start(self, name: str, **settings: object) -> None:
        stop = threading.Event()
        thread = threading.Thread(target=self._run, args=(name, stop, settings), daemon=True)
        self._threads[name] = (thread, stop)
        thread.start()

    def stop(self, *names: str) -> None:
        for name in names or tuple(self._threads):
            self._threads[name][1].set()
        for name in names or tuple(self._threads):
            self._threads.pop(name)[0].join(TIMEOUT_S)
        assert not self.failures, self.failures

    def all_owned(self, partitions: int, among: int) -> bool:
        """Whether every partition has one owner, and everybody at least one."""
        with self.lock:
            owners = [owned for owned in self.owned.values() if owned]
            return len(owners) == among and sorted(p for owned in owners for p in owned) == list(range(partitions))

    def _run(self, name: str, stop: threading.Event, settings: dict[str, object]) -> None:
        is_cooperative = "cooperative" in str(self.settings.get("partition_assignment_strategy", ""))

        def assigned(one: Consumer, parts: list[TopicPartition]) -> None:
            with self.lock:
                before = self.owned.get(name, set()) if is_cooperative else set()
                self.owned[name] = before | {part.partition for part in parts}

        def revoked(one: Consumer, parts: list[TopicPartition]) -> None:
            with self.lock:
                self.owned[name] = self.owned.get(name, set()) - {part.partition for part in parts}

        try:
            with closing(consumer(self.bootstrap, self.group, **{**self.settings, **settings})) as one:
                one.subscribe([self.topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
                while not stop.is_set():
                    message = one.poll(0.1)
                    if message is None or message.error() is not None:
                        continue
                    with self.lock:
                        self.seen[int(message.value())] += 1
                    with suppress(KafkaException):
                        one.commit(message, asynchronous=False)
        except BaseException as error:
            self.failures.append(error)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_come_and_go(own_broker: Callable[..., Subject], strategy: str) -> None:
    broker = own_broker(**QUICK)
    raw_client.create_topic(broker.bootstrap, "t", 6)
    members = Members(broker.bootstrap, "g", "t", partition_assignment_strategy=strategy)
    members.start("a")
    until(lambda: members.all_owned(6, 1))
    members.start("b")
    members.start("c")
    until(lambda: members.all_owned(6, 3))
    produce(broker.bootstrap, "t", range(60), 6)
    until(lambda: len(members.seen) == 60)
    members.stop("a", "b")
    members.owned.pop("a"), members.owned.pop("b")
    until(lambda: members.all_owned(6, 1))
    produce(broker.bootstrap, "t", range(60, 90), 6)
    until(lambda: len(members.seen) == 90)
    members.stop()
    assert set(members.seen) == set(range(90))


def test_a_group_carries_on_through_a_kill_of_the_broker(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    raw_client.create_topic(broker.bootstrap, "t", 4)
    quick = {"reconnect_backoff_max_ms": 200, "topic_metadata_refresh_interval_ms": 1000}
    members = Members(broker.bootstrap, "g", "t", session_timeout_ms=60_000, **quick)
    members.start("a")
    members.start("b")
    until(lambda: members.all_owned(4, 2))
    produce(broker.bootstrap, "t", range(40))
    until(lambda: len(members.seen) == 40)
    before = group(broker.bootstrap, "g")
    for turn in range(1, 3):
        broker.kill()
        broker.start()
        produce(broker.bootstrap, "t", range(40 * turn, 40 * turn + 40))
        until(lambda turn=turn: len(members.seen) == 40 * turn + 40)  # type: ignore[misc]
    after = group(broker.bootstrap, "g")
    members.stop()
    assert {member.member_id for member in after.members} == {member.member_id for member in before.members}
    with closing(consumer(broker.bootstrap, "g")) as one:
        committed = one.committed([TopicPartition("t", index) for index in range(4)], timeout=TIMEOUT_S)
    assert [part.offset for part in committed] == [30] * 4


def until_told(output: IO[str], wanted: str) -> None:
    """Read until this line. With so short a session a busy machine may lose its member, which then comes back."""
    for line in output:
        if line == wanted:
            return
    raise AssertionError(f"it ended without {wanted!r}")


def test_a_crashed_member_is_replaced_after_its_session(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    raw_client.create_topic(broker.bootstrap, "t", 2)
    code = (
        "import sys; from confluent_kafka import Consumer\n"
        f"c = Consumer({{'bootstrap.servers': '{broker.bootstrap}', 'group.id': 'g', 'session.timeout.ms': 1000,"
        " 'heartbeat.interval.ms': 200})\n"
        "c.subscribe(['t'], on_assign=lambda c, parts: print(len(parts), flush=True))\n"
        "while True: c.poll(0.1)\n"
    )
    victim = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert victim.stdout is not None
        until_told(victim.stdout, "2\n")
        members = Members(broker.bootstrap, "g", "t", session_timeout_ms=1000)
        members.start("b")
        until_told(victim.stdout, "1\n")
        until(lambda: len(members.owned.get("b", ())) == 1)
        victim.send_signal(signal.SIGSTOP)
        until(lambda: members.all_owned(2, 1))
        victim.send_signal(signal.SIGCONT)
        until(lambda: len(members.owned["b"]) == 1)
        victim.kill()
        until(lambda: members.all_owned(2, 1))
        members.stop()
    finally:
        victim.kill()
        victim.wait()
        victim.stdout.close()  # type: ignore[union-attr]


def test_static_members_restart_without_a_rebalance(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    raw_client.create_topic(broker.bootstrap, "t", 4)
    members = Members(broker.bootstrap, "g", "t", session_timeout_ms=60_000)
    members.start("a", group_instance_id="a")
    until(lambda: members.all_owned(4, 1))
    members.start("b", group_instance_id="b")
    until(lambda: members.all_owned(4, 2))
    before = {m.group_instance_id: m for m in group(broker.bootstrap, "g").members}
    owned = dict(members.owned)
    members.stop("b")
    members.start("b", group_instance_id="b")
    until(lambda: members.owned.get("b") == owned["b"])
    after = {m.group_instance_id: m for m in group(broker.bootstrap, "g").members}
    assert after["a"].member_id == before["a"].member_id
    assert after["b"].member_id != before["b"].member_id
    assert after["b"].member_assignment == before["b"].member_assignment
    assert members.owned == owned
    produce(broker.bootstrap, "t", range(20))
    until(lambda: len(members.seen) == 20)
    members.stop()


def test_a_zombie_of_a_static_member_is_fenced(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    produce(broker.bootstrap, "t", range(4))
    with (
        closing(consumer(broker.bootstrap, "g", group_instance_id="i")) as zombie,
        closing(consumer(broker.bootstrap, "g", group_instance_id="i")) as heir,
    ):
        zombie.subscribe(["t"])
        assert len(read(zombie, 4)) == 4
        heir.subscribe(["t"])
        assert len(read(heir, 4)) == 4
        with pytest.raises(KafkaException) as refused:
            zombie.commit(asynchronous=False)
        assert refused.value.args[0].code() in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL)
        heir.commit(asynchronous=False)


def test_fifty_groups_read_one_topic(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    produce(broker.bootstrap, "t", range(20))
    with ExitStack() as stack:
        readers = [stack.enter_context(closing(consumer(broker.bootstrap, f"g{number}"))) for number in range(50)]
        for one in readers:
            one.subscribe(["t"])
        for one in readers:
            assert sorted(read(one, 20)) == list(range(20))
            one.commit(asynchronous=False)
    with raw_client.Connection(broker.bootstrap) as connection:
        listed = connection.call(raw_client.LIST_GROUPS, 5, states_filter=["Empty"]).groups
    assert {one.group_id for one in listed} == {f"g{number}" for number in range(50)}


def test_twenty_members_rebalance_cooperatively(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    raw_client.create_topic(broker.bootstrap, "t", 40)
    members = Members(
        broker.bootstrap, "g", "t", partition_assignment_strategy="cooperative-sticky", session_timeout_ms=60_000
    )
    for number in range(20):
        members.start(f"m{number}")
    until(lambda: members.all_owned(40, 20))
    produce(broker.bootstrap, "t", range(400), 40)
    until(lambda: len(members.seen) == 400)
    kept = {name: set(owned) for name, owned in members.owned.items()}
    members.stop(*(f"m{number}" for number in range(5)))
    for number in range(5):
        members.owned.pop(f"m{number}")
    until(lambda: members.all_owned(40, 15))
    assert all(kept[name] <= owned for name, owned in members.owned.items()), "nobody lost what it had"
    produce(broker.bootstrap, "t", range(400, 800), 40)
    until(lambda: len(members.seen) == 800)
    members.stop()
