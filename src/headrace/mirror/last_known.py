"""The last known figures of mirror partitions: what was heard of their sources, by whichever broker led them.

A failover must say what may be missing, also when the broker that copied is lost together with the source. So every
broker remembers the figures of the partitions that it has replicas of: the leaders are asked for them at each
`link.refresh.interval.ms`. A new leader begins with them until it hears the source itself, and they are stored in a
file from time to time, so that they survive a restart of all brokers (`figure_exchange.py`).

They are old by some seconds: what the source got since then is covered by the time since it was last heard.
"""

import logging
from collections.abc import Collection, Iterable
from uuid import UUID

import msgspec

from headrace.mirror.progress import MirrorProgress
from headrace.mirror.reports import PartitionFigures

log = logging.getLogger(__name__)

FigureKey = tuple[UUID, int]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[PartitionFigures]).decode


class LastKnown:
    """Figures by local topic id and partition, with times of this broker's clock."""

    def __init__(self) -> None:
        self._known: dict[FigureKey, PartitionFigures] = {}

    def get(self, key: FigureKey) -> PartitionFigures | None:
        return self._known.get(key)

    def progress(self, key: FigureKey) -> MirrorProgress | None:
        """Where a new leader begins; None if nothing is known."""
        figures = self._known.get(key)
        if figures is None:
            return None
        return MirrorProgress(
            source_end=figures.source_end,
            caught_up_ms=figures.caught_up_ms,
            contact_ms=figures.contact_ms,
            lost_messages=figures.lost_messages,
            undecided=figures.undecided,
            is_inherited=True,
        )

    def note(self, rows: Iterable[PartitionFigures], asked_ms: float) -> None:
        """Note what a leader answered that was asked at this time of this broker's clock.

        Clocks differ: only the ages of its times are used. They count from when it was asked, so that no time becomes
        later than it was.
        """
        for row in rows:
            key = row.topic_id, row.partition
            if row.source_end is None or row.contact_ms is None or row.looked_ms is None:
                continue
            shift_ms = asked_ms - row.looked_ms
            caught_up_ms = None if row.caught_up_ms is None else row.caught_up_ms + shift_ms
            noted = msgspec.structs.replace(
                row, contact_ms=row.contact_ms + shift_ms, caught_up_ms=caught_up_ms, looked_ms=asked_ms, error=""
            )
            before = self._known.get(key)
            if before is None or not row.is_inherited or _is_later(noted, before):
                self._known[key] = noted

    def keep(self, topic_ids: Collection[UUID]) -> None:
        """Forget all other topics."""
        self._known = {key: row for key, row in self._known.items() if key[0] in topic_ids}

    def encoded(self) -> bytes:
        return _encode(list(self._known.values()))

    def load(self, content: bytes) -> None:
        """Take what `encoded` has returned before a restart; nothing if it is damaged."""
        try:
            self._known = {(row.topic_id, row.partition): row for row in _decode(content)}
        except msgspec.MsgspecError as error:
            log.warning("the stored figures of mirror partitions are damaged and are ignored: %s", error)


def _is_later(row: PartitionFigures, other: PartitionFigures) -> bool:
    return (row.contact_ms or 0.0) > (other.contact_ms or 0.0)
