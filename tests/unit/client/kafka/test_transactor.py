"""Transactions over a producer that fails in every way: what is tried again, made anew, or given up."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.client.errors import Fenced, TransactionFailed, Unreachable
from headrace.client.kafka import transactor
from headrace.client.kafka.transactor import TransactionAborted, Transactor
from headrace.client.outgoing import Outgoing

Answer: TypeAlias = KafkaError | Callable[[], None]


class Scripted:
    """A publisher and its producer: each call is answered by what the script has for it, once."""

    def __init__(self, script: dict[str, list[Answer]]) -> None:
        self.producer = self
        self.script = script
        self.calls: list[str] = []
        self.is_discarded = False

    def _call(self, name: str) -> None:
        self.calls.append(name)
        answers = self.script.get(name)
        if answers:
            answer = answers.pop(0)
            if isinstance(answer, KafkaError):
                raise KafkaException(answer)
            answer()

    def init_transactions(self, timeout_s: float) -> None:
        self._call("init")

    def begin_transaction(self) -> None:
        self._call("begin")

    def send_offsets_to_transaction(self, offsets: Any, metadata: Any, timeout_s: float) -> None:
        self._call("offsets")

    def commit_transaction(self, timeout_s: float) -> None:
        self._call("commit")

    def abort_transaction(self, timeout_s: float) -> None:
        self._call("abort")

    def encode(self, outgoing: Outgoing) -> Outgoing:
        return outgoing

    def queue(self, record: Outgoing, on_delivery: Any) -> None:
        self._call("queue")

    def discard(self) -> None:
        self.is_discarded = True


class Setup:
    def __init__(self) -> None:
        self.script: dict[str, list[Answer]] = {}
        self.made: list[Scripted] = []
        self.transactors: list[Transactor] = []

    def make(self) -> Any:
        self.made.append(Scripted(self.script))
        return self.made[-1]

    def transactor(self, *, timeout_s: float = 60, is_shared: bool = True) -> Transactor:
        self.transactors.append(Transactor(self.make, "nowhere:1", timeout_s=timeout_s, is_shared=is_shared))
        return self.transactors[-1]


RETRIABLE = KafkaError(KafkaError._TIMED_OUT, "slow", False, True)
ABORTABLE = KafkaError(KafkaError.ILLEGAL_GENERATION, "left", False, False, True)
FENCED = KafkaError(KafkaError._FENCED, "fenced", True)
FATAL = KafkaError(KafkaError.INVALID_TXN_STATE, "broken", True)
POSITIONS = {("t", 0): 5}


@pytest.fixture
def setup() -> Iterator[Setup]:
    setup = Setup()
    yield setup
    for one in setup.transactors:
        one.close()


def test_what_passes_is_tried_again(setup: Setup) -> None:
    one = setup.transactor()
    setup.script = setup.made[0].script
    setup.script |= {"offsets": [RETRIABLE, RETRIABLE], "commit": [RETRIABLE]}
    one.publish(Outgoing("t", b""))
    one.commit(POSITIONS, None)
    assert setup.made[0].calls == ["init", "begin", "queue", "offsets", "offsets", "offsets", "commit", "commit"]
    one.commit({}, None)
    assert len(setup.made) == 1


def test_a_transaction_that_failed_is_aborted_for_certain(setup: Setup) -> None:
    setup.script = {"offsets": [ABORTABLE], "abort": [RETRIABLE]}
    one = setup.transactor()
    with pytest.raises(TransactionAborted):
        one.commit(POSITIONS, None)
    assert one.abort()
    one.commit(POSITIONS, None)
    assert len(setup.made) == 1


def test_a_message_that_is_refused_by_a_failed_transaction_is_no_more_than_that(setup: Setup) -> None:
    setup.script = {"queue": [KafkaError(KafkaError._STATE)]}
    one = setup.transactor()
    with pytest.raises(TransactionAborted):
        one.publish(Outgoing("t", b""))
    assert one.abort()


@pytest.mark.parametrize("step", ["offsets", "commit"])
def test_a_producer_that_failed_for_good_is_made_anew(setup: Setup, step: str) -> None:
    setup.script = {step: [FATAL]}
    one = setup.transactor()
    with pytest.raises(TransactionAborted):
        one.commit(POSITIONS, None)
    with pytest.raises(TransactionAborted):
        one.publish(Outgoing("t", b""))
    assert not one.abort()
    assert setup.made[0].is_discarded
    one.commit(POSITIONS, None)
    assert setup.made[1].calls == ["init", "begin", "offsets", "commit"]


def test_so_is_one_that_cannot_abort(setup: Setup) -> None:
    setup.script = {"offsets": [ABORTABLE], "abort": [ABORTABLE]}
    one = setup.transactor()
    with pytest.raises(TransactionAborted):
        one.commit(POSITIONS, None)
    assert not one.abort()
    assert len(setup.made) == 2


def test_so_is_one_that_does_not_return(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactor, "_CALL_TIMEOUT_S", 1.0)
    monkeypatch.setattr(transactor, "_GRACE_S", 2.0)
    for_ever = threading.Event()
    setup.script = {"offsets": [lambda: for_ever.wait() and None]}
    one = setup.transactor()
    with pytest.raises(TransactionAborted):
        one.commit(POSITIONS, None)
    assert not one.abort()
    one.commit(POSITIONS, None)
    for_ever.set()


def test_a_successor_fences_for_good(setup: Setup) -> None:
    setup.script = {"offsets": [FENCED]}
    one = setup.transactor()
    for call in (
        lambda: one.commit(POSITIONS, None),
        lambda: one.commit(POSITIONS, None),
        lambda: one.publish(Outgoing("t", b"")),
        one.abort,
    ):
        with pytest.raises(Fenced):
            call()
    one.close()
    assert len(setup.made) == 1


@pytest.mark.parametrize(("timeout_s", "is_shared"), [(0.0, True), (60.0, False)])
def test_a_broker_that_ended_a_late_transaction_does_not(setup: Setup, timeout_s: float, is_shared: bool) -> None:
    setup.script = {"commit": [FENCED]}
    one = setup.transactor(timeout_s=timeout_s, is_shared=is_shared)
    with pytest.raises(TransactionAborted):
        one.commit(POSITIONS, None)
    assert not one.abort()
    one.commit(POSITIONS, None)


def test_in_a_hurry_nobody_is_waited_for(setup: Setup) -> None:
    setup.script = {"commit": [RETRIABLE]}
    one = setup.transactor()
    one.hurry()
    with pytest.raises(Unreachable):
        one.commit(POSITIONS, None)
    setup.script |= {"abort": [FATAL], "init": [RETRIABLE]}
    with pytest.raises(Unreachable):
        one.abort()


def test_where_no_transactions_are_allowed_nothing_is_left_behind(setup: Setup) -> None:
    setup.script = {"init": [KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no", True)]}
    with pytest.raises(TransactionFailed, match="no"):
        setup.transactor()
    assert setup.made[0].is_discarded
