"""The form of a fetcher's requests: as a replica of this cluster, or in another form, by which limits."""

from collections.abc import Callable
from typing import Protocol

from headrace.config.broker import BrokerSettings
from headrace.model.backoff import ExponentialDelay
from headrace.model.ids import BrokerId
from headrace.protocol.fetch_request import REPLICA_FETCH_VERSION, write_replica_fetch
from headrace.protocol.fetch_response import FetchedRecords
from headrace.replication.fetch_session import Ask


class FollowerHost(Protocol):
    """The part of `Metadata` that this module uses."""

    @property
    def broker_id(self) -> BrokerId: ...

    @property
    def settings(self) -> BrokerSettings: ...


class FetchForm(Protocol):
    @property
    def version(self) -> int:
        """Of Fetch."""
        ...

    @property
    def settings(self) -> BrokerSettings:
        """Their `replica_fetch` settings are the limits."""
        ...

    @property
    def grace_s(self) -> float:
        """The time that a whole response may take beyond the wait that the request allows."""
        ...

    @property
    def reconnect_delay_s(self) -> ExponentialDelay:
        """Between attempts to reach a leader that does not answer."""
        ...

    @property
    def empty_pause_s(self) -> float:
        """Before the next request, after an answer without records: of a leader that does not wait for any."""
        ...

    def write(self, correlation_id: int, ask: Ask) -> bytes:
        """Encode a request."""
        ...

    def committed(self, part: FetchedRecords) -> int:
        """The end of what is committed for this kind of reader."""
        ...


class ReplicaFetchForm:
    """Fetches as a replica. `broker_epoch` is sent so that leaders can ignore earlier incarnations of this broker."""

    version = REPLICA_FETCH_VERSION
    grace_s = 3.0
    reconnect_delay_s = ExponentialDelay(0.05, 0.25)
    """Short, because a restarted leader waits for its followers before it acknowledges anything."""

    empty_pause_s = 0.0

    def __init__(self, host: FollowerHost, broker_epoch: Callable[[], int]) -> None:
        self._host = host
        self._broker_epoch = broker_epoch
        self._client_id = f"broker-{host.broker_id}"

    @property
    def settings(self) -> BrokerSettings:
        return self._host.settings

    def write(self, correlation_id: int, ask: Ask) -> bytes:
        settings = self._host.settings
        return write_replica_fetch(
            correlation_id,
            self._client_id,
            replica_id=self._host.broker_id,
            replica_epoch=self._broker_epoch(),
            max_wait_ms=settings.replica_fetch_wait_max_ms,
            min_bytes=1,
            max_bytes=settings.replica_fetch_response_max_bytes,
            session_id=ask.session_id,
            session_epoch=ask.session_epoch,
            wanted=ask.wanted,
            forgotten=ask.forgotten,
        )

    @staticmethod
    def committed(part: FetchedRecords) -> int:
        return part.high_watermark
