"""Fetches over a link: as a read_committed consumer, so that the source answers whole decided batches, aborted ones and
markers included, and nothing past its last stable offset."""

from headrace.config.broker import BrokerSettings
from headrace.model.backoff import ExponentialDelay
from headrace.protocol.fetch_request import LINK_FETCH_VERSION, write_link_fetch
from headrace.protocol.fetch_response import FetchedRecords
from headrace.replication.fetch_form import FollowerHost
from headrace.replication.fetch_session import Ask


class LinkFetchForm:
    version = LINK_FETCH_VERSION
    grace_s = 30.0
    """Enough for `replica.fetch.response.max.bytes` over a slow line, and for a source that delays by a quota. A leader
    that is gone is noticed without it: the source's metadata are fetched as often."""
    reconnect_delay_s = ExponentialDelay(0.05, 1.0)
    """A source may be away for days, and may refuse the login."""
    empty_pause_s = 0.02
    """A source that answers at once and has nothing would keep this broker busy."""

    def __init__(self, host: FollowerHost, link: str) -> None:
        self._host = host
        self._client_id = f"link-{link}"

    @property
    def settings(self) -> BrokerSettings:
        return self._host.settings

    def write(self, correlation_id: int, ask: Ask) -> bytes:
        settings = self._host.settings
        return write_link_fetch(
            correlation_id,
            self._client_id,
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
        return part.last_stable_offset
