"""librdkafka for the client commands: quiet, quick to give up, and with errors in words."""

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.cli.errors import CommandFailed
from headrace.cli.names import no_such
from headrace.cli.reach import CONNECT_TIMEOUT_S, check_advertised, check_reachable, nobody_at
from headrace.model.image import Endpoint

REQUEST_TIMEOUT_S = 30.0

_UNREACHABLE = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
}

# librdkafka would write its own lines to stderr, between ours.
_silent = logging.getLogger("headrace.cli.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False

T = TypeVar("T")


def client_config(bootstrap: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "headrace-cli",
        "logger": _silent,
        "topic.metadata.refresh.interval.ms": 30_000,
        "reconnect.backoff.ms": 20,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


class Admin:
    """What the commands ask of a broker. Every error is a `CommandFailed` with a sentence."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient(client_config(bootstrap))
        self._is_reachable = False

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        try:
            return function(*args, **kwargs)
        except KafkaException as error:
            raise self.failed(error.args[0]) from None
        except TimeoutError:
            raise CommandFailed(f"the broker at {self.bootstrap} did not answer in {REQUEST_TIMEOUT_S:.0f} s") from None
        except (ValueError, TypeError) as error:
            raise CommandFailed(str(error)) from None

    def wait(self, future: "Future[T]") -> T:
        return self.call(future.result, REQUEST_TIMEOUT_S + 5)

    def wait_each(self, futures: "Mapping[str, Future[Any]]", failed: str, done: Callable[[str], None]) -> None:
        """Wait for what is done to each name: `done` is told of every success, also after a failure. Then the first
        failure is raised, as `failed` with the name in it."""
        first: CommandFailed | None = None
        for name, future in futures.items():
            try:
                self.wait(future)
            except CommandFailed as failure:
                first = first or CommandFailed(f"{failed.format(name)}: {failure}")
            else:
                done(name)
        if first is not None:
            raise first

    def failed(self, error: KafkaError, what: str = "") -> CommandFailed:
        return CommandFailed(f"{what}{': ' if what else ''}{explain(error, self.bootstrap)}")

    def cluster(self) -> Any:
        """Brokers and topics. The first call of every command: it is what fails when nobody is there."""
        if self._is_reachable:
            return self.call(self.admin.list_topics, timeout=CONNECT_TIMEOUT_S)
        check_reachable(self.bootstrap)
        found = self.call(self.admin.list_topics, timeout=CONNECT_TIMEOUT_S)
        check_advertised(self.bootstrap, [Endpoint(each.host, each.port) for each in found.brokers.values()])
        self._is_reachable = True
        return found

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic, without asking for it by name: that could create it."""
        known = self.cluster().topics
        found = known.get(topic)
        if found is None:
            raise CommandFailed(no_such("topic", topic, known, "headrace topic list"))
        return sorted(found.partitions)

    def offsets(self, topic: str, partitions: Iterable[int], spec: OffsetSpec) -> dict[int, int]:
        """The offset that `spec` stands for, by partition; -1 where no record is that young."""
        wanted = {TopicPartition(topic, partition): spec for partition in partitions}
        if not wanted:
            return {}
        futures = self.call(self.admin.list_offsets, wanted, request_timeout=REQUEST_TIMEOUT_S)
        return {where.partition: self.wait(future).offset for where, future in futures.items()}


def explain(error: KafkaError, bootstrap: str) -> str:
    """A sentence for an error of librdkafka or of the broker."""
    code = error.code()
    if code in _UNREACHABLE:
        return nobody_at(bootstrap)
    text = error.str()
    name = error.name()
    # A broker may add its reason to the error; librdkafka's own text is only the meaning of the number.
    return f"{text} ({name})" if name and name not in text else str(text)
