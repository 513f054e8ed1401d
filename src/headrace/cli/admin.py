"""Requests of the commands to a broker through librdkafka's admin client, with every error in words."""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.cli.errors import CommandFailed
from headrace.cli.names import no_such
from headrace.cli.reach import CONNECT_TIMEOUT_S, check_advertised, check_reachable, unreachable_text
from headrace.client.kafka import librdkafka
from headrace.config.client_connection import resolve_credentials
from headrace.config.credentials import Credentials
from headrace.model.image import Endpoint

REQUEST_TIMEOUT_S = 30.0
_LEADER_WAIT_S = 10.0
_LEADER_RETRY_S = 0.1
_LEADER_AWAY = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)

T = TypeVar("T")


def cli_config(bootstrap: str, **settings: Any) -> dict[str, Any]:
    """The configuration of a command's client, with the credentials of the environment and its profile; settings are
    librdkafka's, with underscores for dots."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    common = {"topic.metadata.refresh.interval.ms": 30_000, **_credentials().librdkafka()}
    return librdkafka.client_config(bootstrap, "headrace-cli", {**common, **named}, may_rebootstrap=True)


def _credentials() -> Credentials:
    """The credentials, with files that can be used: librdkafka's errors about those are hard to read."""
    found = resolve_credentials()
    if found.uses_tls:
        from headrace.security.tls.client_context import credentials_context

        credentials_context(found)
    return found


class Admin:
    """An admin client for commands. Every error is a `CommandFailed` with a sentence."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient(cli_config(bootstrap))
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
        """Wait for the operation on each name and call `done` for every success, also after a failure. Then raise the
        first failure: `failed` formatted with its name."""
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
        """Brokers and topics. Every command calls this first, so it is what fails when no broker is reachable."""
        if self._is_reachable:
            return self.call(self.admin.list_topics, timeout=CONNECT_TIMEOUT_S)
        check_reachable(self.bootstrap)
        found = self.call(self.admin.list_topics, timeout=CONNECT_TIMEOUT_S)
        check_advertised(self.bootstrap, [Endpoint(each.host, each.port) for each in found.brokers.values()])
        self._is_reachable = True
        return found

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic. Requests the metadata of all topics: naming one could create it."""
        known = self.cluster().topics
        found = known.get(topic)
        if found is None:
            raise CommandFailed(no_such("topic", topic, known, "headrace topic list"))
        return sorted(found.partitions)

    def offsets(self, topic: str, partitions: Iterable[int], spec: OffsetSpec) -> dict[int, int]:
        """The offset that `spec` resolves to, by partition; -1 where no record is that recent.

        A partition whose leader has just changed, or was just elected, is asked for again.
        """
        wanted = {TopicPartition(topic, partition): spec for partition in partitions}
        if not wanted:
            return {}
        end_s = time.monotonic() + _LEADER_WAIT_S
        while True:
            futures = self.call(self.admin.list_offsets, wanted, request_timeout=REQUEST_TIMEOUT_S)
            failures = [self.call(each.exception, REQUEST_TIMEOUT_S + 5) for each in futures.values()]
            if not any(map(_is_leader_away, failures)) or time.monotonic() > end_s:
                return {where.partition: self.wait(future).offset for where, future in futures.items()}
            time.sleep(_LEADER_RETRY_S)


def _is_leader_away(failure: BaseException | None) -> bool:
    return isinstance(failure, KafkaException) and failure.args[0].code() in _LEADER_AWAY


def explain(error: KafkaError, bootstrap: str, *, reading: str | None = None) -> str:
    """An error of librdkafka or of a broker in words, with the command that finds out more."""
    if librdkafka.is_unreachable(error):
        return unreachable_text(bootstrap)
    return librdkafka.explain(error, bootstrap, reading=reading)
