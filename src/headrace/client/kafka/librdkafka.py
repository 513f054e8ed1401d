"""The one place that knows how librdkafka is configured and how its errors read in words."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer, libversion

from headrace.client.errors import ClientError, ConsumeFailed, DeliveryFailed, Unreachable

log = logging.getLogger("headrace.client")

T = TypeVar("T")

_TELL_EVERY_S = 60.0
_WARM_UP_S = 3.0
"""If it takes longer, the message waits as others do."""

Settings = Mapping[str, Any]
"""Settings of librdkafka by their own names (`security.protocol`, `compression.type`); they win over ours."""

UNREACHABLE = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
}

PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REBALANCE_IN_PROGRESS,
}
"""Errors after which a consumer goes on by itself: it reconnects, rejoins, or waits for the topic to be made."""


# When no broker answers, librdkafka 2.10 and later forget them all and begin anew with the bootstrap servers. They do
# not wait between tries, and `send_offsets_to_transaction` goes on waiting for a broker that was forgotten
# (librdkafka's issue 5511).
_RECOVERY = {"metadata.recovery.strategy": "none"} if libversion()[1] >= 0x020A0000 else {}


class _Lines:
    """librdkafka's own lines, for who debugs: they are of the level DEBUG, and of a logger of their own. What a user is
    to know is told by errors, and by `Troubles`."""

    _log = logging.getLogger("headrace.client.librdkafka")

    def log(self, level: int, text: str, *args: Any) -> None:
        self._log.debug(text, *args)


_lines = _Lines()


class Troubles:
    """Says once a minute what keeps librdkafka from reaching brokers, in a sentence; one for all producers and
    consumers of a client. At worst, when several threads call it, a sentence comes twice."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._bootstrap_addresses = {each.strip() for each in bootstrap.split(",")}
        self._told_at_s: dict[str, float] = {}
        self.last: tuple[str, datetime] | None = None
        """The last of them, and when it was."""

    def __call__(self, error: KafkaError) -> None:
        sentence = self._sentence(error)
        self.last = (sentence or explain(error, self._bootstrap), datetime.now(UTC))
        if sentence is None:
            log.debug("a connection to %s failed: %s", self._bootstrap, error.str())
            return
        now_s = time.monotonic()
        self._told_at_s = {told: at_s for told, at_s in self._told_at_s.items() if now_s - at_s < _TELL_EVERY_S}
        if sentence not in self._told_at_s:
            self._told_at_s[sentence] = now_s
            log.warning("%s; the client tries again", sentence)

    def _sentence(self, error: KafkaError) -> str | None:
        """What a user should know of it; None where others will say so, or it mends itself."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            return f"no broker answers at {self._bootstrap}"
        text = str(error.str())
        if error.code() not in (KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT):
            return f"a connection to {self._bootstrap} failed: {text}"
        # It begins with the address and the id of the broker. An address that the cluster names may be of another
        # network than the client's, and nothing else tells of that: the bootstrap servers do answer.
        address, _, rest = text.partition("/")
        is_known = not rest or address in self._bootstrap_addresses
        if is_known or not ("Connect" in rest or "resolve" in rest):
            return None
        what = rest.partition(": ")[2].partition(" (after")[0]
        return f"no connection to {address}, which the cluster at {self._bootstrap} names as a broker's address: {what}"


def common(bootstrap: str, client_id: str, settings: Settings) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "logger": _lines,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 2_000,
        **_RECOVERY,
        **settings,
    }


_CONSUMER_ONLY = ("group.", "fetch.", "auto.offset.", "max.poll.", "session.", "heartbeat.", "partition.assignment.")
_PRODUCER_ONLY = ("linger.", "batch.", "acks", "compression.", "transaction", "message.timeout", "delivery.", "queue.")


def producer(bootstrap: str, client_id: str, settings: Settings, *, uses_keys: bool) -> dict[str, Any]:
    ours = {
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 0,
        "queue.buffering.max.kbytes": 256 * 1024,
        "partitioner": "murmur2_random" if uses_keys else "random",
        "message.timeout.ms": 60_000,
        # A message of a queue has up to 1 MiB, and headers; librdkafka's own limit is a little less.
        "message.max.bytes": 2 * 1024 * 1024,
    }
    return {**ours, **common(bootstrap, client_id, _without(settings, _CONSUMER_ONLY))}


def consumer(bootstrap: str, client_id: str, group: str, settings: Settings, *, start: str) -> dict[str, Any]:
    ours = {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": start,
        "isolation.level": "read_committed",
        "allow.auto.create.topics": True,
        "fetch.wait.max.ms": 100,
        # A topic that is not there yet is looked for this often.
        "topic.metadata.refresh.interval.ms": 30_000,
    }
    chosen = _without(settings, _PRODUCER_ONLY)
    if chosen.get("group.protocol", "classic") == "classic":
        # A member that joins or leaves does not stop the others.
        ours["partition.assignment.strategy"] = "cooperative-sticky"
    return {**ours, **common(bootstrap, client_id, chosen)}


def shared(settings: Settings) -> Settings:
    """The settings that are neither for producers nor for consumers alone."""
    return _without(settings, _CONSUMER_ONLY + _PRODUCER_ONLY)


def _without(settings: Settings, prefixes: tuple[str, ...]) -> dict[str, Any]:
    """One set of settings serves producers and consumers: librdkafka warns of those that are not for it."""
    return {name: value for name, value in settings.items() if not name.startswith(prefixes)}


def made(kind: Callable[[dict[str, Any]], T], config: dict[str, Any]) -> T:
    """A client of librdkafka."""
    try:
        return kind(config)
    except KafkaException as failure:
        raise ClientError(f"librdkafka does not take these settings: {failure.args[0].str()}") from None


def warm_up(producer: Producer, topic: str) -> None:
    """Let an idempotent producer connect and get its id before its first message.

    librdkafka asks for the id half a second after it was started, and again half a second later if no broker was
    connected by then; until it has one, messages wait. It also asks after an answer about a topic when a broker is
    connected, which the second question makes sure of. So the first message to a topic that is there takes
    some 15 ms, not 500 to 1,000.
    """
    with suppress(KafkaException):
        for _ in range(2):
            producer.list_topics(topic, _WARM_UP_S)


def explain(error: KafkaError, bootstrap: str) -> str:
    """A sentence for an error."""
    if error.code() in UNREACHABLE:
        return f"no broker answers at {bootstrap}"
    text, name = str(error.str()), str(error.name())
    return text if name in text else f"{text} ({name})"


def translate(failure: KafkaException, bootstrap: str, what: str) -> ClientError:
    """The SDK's error for one of librdkafka."""
    error = failure.args[0]
    text = f"{what}: {explain(error, bootstrap)}"
    return Unreachable(text) if error.code() in UNREACHABLE else ConsumeFailed(text)


def undelivered(topic: str, error: KafkaError, bootstrap: str) -> ClientError:
    """Why a message is not stored, or nobody knows whether it is."""
    text = f"a message to {topic} was not delivered: {explain(error, bootstrap)}"
    return Unreachable(text) if error.code() in UNREACHABLE else DeliveryFailed(text, code=str(error.name()))


@contextmanager
def logged(what: str) -> Iterator[None]:
    """For what is done after a failure, which must not be hidden by another."""
    try:
        yield
    except ClientError as error:
        log.warning("%s after a failure failed, too: %s", what, error)
