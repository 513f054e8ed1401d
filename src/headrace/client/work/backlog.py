"""The backlog of the queues and groups of an application: from the HTTP API of the brokers, or else by counting.

The API (`/api/v1/scale/…`) knows the age of the oldest message. A user without a password, and Kafka brokers that are
not Headrace, are no problem: then queues are counted as workers count them, and the lag of a group is the sum of what
its members report.
"""

import time
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from headrace.client.errors import ClientError
from headrace.client.factory import ConnectionFactory
from headrace.client.json_api import JsonApi
from headrace.client.queue.queue import Queue
from headrace.client.work.messages import Backlog, SourceBacklog, WorkSource

_TIMEOUT_S = 3.0
_COUNT_PARTITIONS_EVERY_S = 60.0
_TRY_API_EVERY_S = 10.0
_MOST = "100000"


class BacklogReader:
    """Asks for the backlog of sources; `queues` are those of the sources that are queues, by name."""

    def __init__(self, sources: list[WorkSource], connection: ConnectionFactory, queues: Mapping[str, Queue]) -> None:
        self._sources = sources
        self._connection = connection
        self._queues = queues
        self._api: JsonApi | None = None
        self._try_api_at_s = 0.0
        self._problem = ""
        self._partitions: dict[str, tuple[float, int | None]] = {}

    def look(self) -> Backlog:
        """The backlog now; what is not known is None. Never raises a `ClientError`."""
        found = [self._of(source) for source in self._sources]
        return Backlog(found, self._problem)

    def _of(self, source: WorkSource) -> SourceBacklog:
        if time.monotonic() >= self._try_api_at_s:
            try:
                found = self._asked(source)
            except ClientError as error:
                self._api = None
                self._problem = f"lag in seconds is not known: {error}"
                self._try_api_at_s = time.monotonic() + _TRY_API_EVERY_S
            else:
                self._problem = ""
                return found
        return self._counted(source)

    def _asked(self, source: WorkSource) -> SourceBacklog:
        if self._api is None:
            self._api = self._connection.api(_TIMEOUT_S)
        query = {"max": _MOST}
        if source.kind == "group":
            query |= {"topic": ",".join(source.topics), "start": source.start}
        answer = self._api.call("GET", f"/scale/{source.kind}/{quote(source.id, safe='')}?{urlencode(query)}")
        return SourceBacklog(source.name, answer["lag_messages"], answer["lag_seconds"], answer["cap"])

    def _counted(self, source: WorkSource) -> SourceBacklog:
        try:
            if source.kind == "queue":
                counts = self._queues[source.id].counts()
                return SourceBacklog(source.name, counts.available + counts.in_flight)
            return SourceBacklog(source.name, None, cap=self._partition_count(source))
        except ClientError as error:
            self._problem = str(error)
            return SourceBacklog(source.name, None)

    def _partition_count(self, source: WorkSource) -> int | None:
        counted_at_s, count = self._partitions.get(source.id, (-_COUNT_PARTITIONS_EVERY_S, None))
        if time.monotonic() - counted_at_s >= _COUNT_PARTITIONS_EVERY_S:
            count = sum(self._connection.partition_count(topic) or 0 for topic in source.topics) or None
            self._partitions[source.id] = time.monotonic(), count
        return count
