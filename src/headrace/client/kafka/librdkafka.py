"""The wrapper of librdkafka, for the SDK and the command line: configuration, quiet logging, and errors in words."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer, libversion

from headrace.client.errors import BacklogFull, ClientError, ConsumeFailed, DeliveryFailed, Unreachable
from headrace.model.data_keys import unreadable_text

log = logging.getLogger("headrace.client")

T = TypeVar("T")

_LOG_EVERY_S = 60.0
_WARM_UP_S = 3.0
"""After this the first message is sent anyway, and waits for the producer id."""

Settings = Mapping[str, Any]
"""Settings of librdkafka by their own names (`security.protocol`, `compression.type`); they win over ours."""

UNREACHABLE = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
}

TRANSIENT = {
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
"""Errors from which a consumer recovers by itself: it reconnects, rejoins, or waits until the topic exists."""


# When no broker answers, librdkafka 2.10 and later forget all brokers and start again from the bootstrap servers. This
# has no backoff, and `send_offsets_to_transaction` waits for a forgotten broker (librdkafka's issue 5511).
_NO_REBOOTSTRAP = {"metadata.recovery.strategy": "none"} if libversion()[1] >= 0x020A0000 else {}


class _DebugLogger:
    """Logs librdkafka's own lines at DEBUG, to a logger of their own; users learn of problems from errors and from
    `ConnectionErrorLog`. Without a logger librdkafka writes to stderr."""

    _log = logging.getLogger("headrace.client.librdkafka")

    def log(self, level: int, text: str, *args: Any) -> None:
        self._log.debug(text, *args)


_debug_logger = _DebugLogger()


class ConnectionErrorLog:
    """The `error_cb` of all producers and consumers of a client: logs why brokers cannot be reached, each reason once a
    minute. It takes no lock: calls of several threads at once may log a reason twice."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._bootstrap_addresses = {each.strip() for each in bootstrap.split(",")}
        self._logged_at_s: dict[str, float] = {}
        self.last: tuple[str, datetime] | None = None
        """The last error and its time."""

    def __call__(self, error: KafkaError) -> None:
        sentence = self._sentence(error)
        self.last = (sentence or explain(error, self._bootstrap), datetime.now(UTC))
        if sentence is None:
            log.debug("a connection to %s failed: %s", self._bootstrap, error.str())
            return
        now_s = time.monotonic()
        self._logged_at_s = {reason: at_s for reason, at_s in self._logged_at_s.items() if now_s - at_s < _LOG_EVERY_S}
        if sentence not in self._logged_at_s:
            self._logged_at_s[sentence] = now_s
            log.warning("%s; the client tries again", sentence)

    def _sentence(self, error: KafkaError) -> str | None:
        """The error in words; None if a later error reports it, or if it is transient."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            return f"no broker answers at {self._bootstrap}"
        text = str(error.str())
        if error.code() not in (KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT):
            return f"a connection to {self._bootstrap} failed: {text}"
        # The text begins with the address and the id of the broker. An advertised address may not be reachable from the
        # client's network, and no other error reports that: the bootstrap servers do answer.
        address, _, rest = text.partition("/")
        is_known = not rest or address in self._bootstrap_addresses
        if is_known or not ("Connect" in rest or "resolve" in rest):
            return None
        what = rest.partition(": ")[2].partition(" (after")[0]
        return f"no connection to {address}, which the cluster at {self._bootstrap} advertises for a broker: {what}"


def client_config(
    bootstrap: str, client_id: str, settings: Settings, *, may_rebootstrap: bool = False
) -> dict[str, Any]:
    """The configuration of any client: quiet, and quick to reconnect. `may_rebootstrap` suits a client that is soon
    closed: it still gets an answer from the bootstrap servers when the addresses that they advertise are wrong."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "logger": _debug_logger,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 2_000,
        **({} if may_rebootstrap else _NO_REBOOTSTRAP),
        **settings,
    }


_CONSUMER_ONLY = ("group.", "fetch.", "auto.offset.", "max.poll.", "session.", "heartbeat.", "partition.assignment.")
_PRODUCER_ONLY = ("linger.", "batch.", "acks", "compression.", "transaction", "message.timeout", "delivery.", "queue.")


def producer_config(bootstrap: str, client_id: str, settings: Settings, *, uses_keys: bool) -> dict[str, Any]:
    ours = {
        "acks": "all",
        "enable.idempotence": True,
        "linger.ms": 0,
        "queue.buffering.max.kbytes": 256 * 1024,
        "partitioner": "murmur2_random" if uses_keys else "random",
        "message.timeout.ms": 60_000,
        # A message of a queue may have 1 MiB plus headers, which exceeds librdkafka's default.
        "message.max.bytes": 2 * 1024 * 1024,
    }
    return {**ours, **client_config(bootstrap, client_id, _without(settings, _CONSUMER_ONLY))}


def consumer_config(bootstrap: str, client_id: str, group: str, settings: Settings, *, start: str) -> dict[str, Any]:
    ours = {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": start,
        "isolation.level": "read_committed",
        "allow.auto.create.topics": True,
        "fetch.wait.max.ms": 100,
        # How soon a subscribed topic that does not exist yet is found.
        "topic.metadata.refresh.interval.ms": 30_000,
    }
    chosen = _without(settings, _PRODUCER_ONLY)
    if chosen.get("group.protocol", "classic") == "classic":
        # Members keep their other partitions during a rebalance.
        ours["partition.assignment.strategy"] = "cooperative-sticky"
    return {**ours, **client_config(bootstrap, client_id, chosen)}


def shared_settings(settings: Settings) -> Settings:
    """The settings that apply to any client, not only to producers or only to consumers."""
    return _without(settings, _CONSUMER_ONLY + _PRODUCER_ONLY)


def _without(settings: Settings, prefixes: tuple[str, ...]) -> dict[str, Any]:
    """Users give one set of settings for producers and consumers; librdkafka warns about those of the other kind."""
    return {name: value for name, value in settings.items() if not name.startswith(prefixes)}


def create_client(kind: Callable[[dict[str, Any]], T], config: dict[str, Any]) -> T:
    """A producer, consumer or admin client; `ClientError` for a setting that librdkafka rejects."""
    try:
        return kind(config)
    except KafkaException as failure:
        raise ClientError(f"librdkafka does not take these settings: {failure.args[0].str()}") from None


def warm_up(producer: Producer, topic: str) -> None:
    """Let an idempotent producer connect and get its producer id before its first message.

    librdkafka requests the id half a second after the start, and again half a second later if no broker was connected
    by then; messages wait for it. It also requests the id after a metadata response while a broker is connected, which
    the second request here ensures. So the first message to an existing topic takes some 15 ms, not 500 to 1,000.
    """
    with suppress(KafkaException):
        for _ in range(2):
            producer.list_topics(topic, _WARM_UP_S)


def is_unreachable(error: KafkaError) -> bool:
    """Whether the error means that no broker answered."""
    return error.code() in UNREACHABLE


_NO_PRODUCER_ID = "idempotence PID"
"""An idempotent producer asks for an id first, which needs WRITE on some topic."""


def explain(error: KafkaError, bootstrap: str, *, reading: str | None = None) -> str:
    """An error of librdkafka or of a broker in words; a broker may have added its reason to the meaning of the code.

    `reading` is the topic whose fetch has failed. A fetch has no text for its reason, only a code.
    """
    if is_unreachable(error):
        return f"no broker answers at {bootstrap}"
    text, name = str(error.str()), str(error.name())
    if error.code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED and _NO_PRODUCER_ID in text:
        return (
            f"this user may not write to any topic, or is not allowed to be an idempotent producer: "
            f"headrace acl add NAME --producer TOPIC ({name})"
        )
    if reading is not None:
        text = unreadable_text(error.code(), reading) or text
    return text if name in text else f"{text} ({name})"


def consume_error(failure: KafkaException, bootstrap: str, what: str) -> ClientError:
    """The SDK's error for a failed call of a consumer."""
    error = failure.args[0]
    text = f"{what}: {explain(error, bootstrap)}"
    return Unreachable(text) if is_unreachable(error) else ConsumeFailed(text)


def delivery_error(topic: str, error: KafkaError, bootstrap: str) -> ClientError:
    """The SDK's error for a message that was not acknowledged: it is not stored, or may be."""
    text = f"a message to {topic} was not delivered: {explain(error, bootstrap)}"
    if error.code() == KafkaError._MSG_TIMED_OUT:
        text += f", or {topic} has had no room for it: its backlog is at its bound, and the policy is block"
    return Unreachable(text) if is_unreachable(error) else refused_delivery(error, text)


_TAKES_NO_MORE = (
    "; the broker takes no more for now, because the backlog is at its bound, or topics with its prefix store as much "
    "as their quota allows. Send again when consumers have caught up, start more of them, or raise the bound, which "
    "`headrace topic describe` and `headrace quota top` show"
)
_NOT_VALID = (
    "; it does not fit the schema of the topic, has no key although the topic is compacted, or the topic was shredded: "
    "`headrace topic describe` shows what the topic demands"
)
_READ_ONLY = (
    "; the topic is a mirror of one in another cluster, and read-only: send to that cluster, or take the topic over "
    "with `headrace link promote` (`failover` if that cluster is lost)"
)


def refusal_hint(error: KafkaError) -> str:
    """What an error says about the topic: the broker's own words are in its answer, which librdkafka does not show."""
    match error.code():
        case KafkaError.POLICY_VIOLATION:
            return _TAKES_NO_MORE
        case KafkaError.INVALID_RECORD:
            return _NOT_VALID
        case KafkaError.INVALID_REQUEST:
            return _READ_ONLY
        case _:
            return ""


def refused_delivery(error: KafkaError, text: str, count: int = 1) -> DeliveryFailed:
    """The SDK's error, with a text, for messages that a broker has refused."""
    made = BacklogFull if error.code() == KafkaError.POLICY_VIOLATION else DeliveryFailed
    return made(text + refusal_hint(error), code=str(error.name()), count=count)


@contextmanager
def log_errors(what: str) -> Iterator[None]:
    """Log errors of cleaning up after a failure, so that they do not hide the failure itself."""
    try:
        yield
    except ClientError as error:
        log.warning("%s failed too, after an earlier failure: %s", what, error)
