"""Mirrors the offsets of a pipeline to a consumer group, so that any tool that shows the lag of groups shows its lag.

The pipeline itself restarts from its checkpoint. A failed commit to the group is therefore only logged.
"""

import logging

from headrace.pipelines.control.progress import Offsets
from headrace.pipelines.control.topics import cluster_at, matching
from headrace.pipelines.spec.model import Spec
from headrace.wire import Cluster, WireError

_log = logging.getLogger("headrace.pipelines")


class OffsetMirror:
    """Commits offsets to the pipeline's consumer group, on the cluster of each source."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._clusters: dict[str, Cluster] = {}
        self._committed: Offsets = {}

    def commit(self, offsets: Offsets) -> None:
        """Commit the offsets that have changed since the last call."""
        fresh = {where: offset for where, offset in offsets.items() if self._committed.get(where) != offset}
        by_cluster: dict[str, Offsets] = {}
        for source in self._spec.streams.values():
            topics = set(matching(source, [topic for topic, _ in fresh]))
            part = {where: offset for where, offset in fresh.items() if where[0] in topics}
            by_cluster.setdefault(self._spec.bootstrap_of(source), {}).update(part)
        for bootstrap, part in by_cluster.items():
            if part:
                self._commit(bootstrap, part)

    def _commit(self, bootstrap: str, offsets: Offsets) -> None:
        cluster = self._clusters.setdefault(bootstrap, cluster_at(bootstrap, self._spec.connection))
        try:
            cluster.commit_offsets(self._spec.group, offsets)
        except WireError as error:
            _log.warning("the offsets were not committed to the mirror group %s: %s", self._spec.group, error)
        else:
            self._committed |= offsets

    def close(self) -> None:
        for cluster in self._clusters.values():
            cluster.close()
