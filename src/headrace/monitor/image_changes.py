"""Counts changes of the cluster: the ISR, leaders and the controller.

Each change is counted by one broker, so that a sum over brokers counts it once: those of a partition by its leader, an
election by the new leader or controller.
"""

from headrace.model.ids import BrokerId
from headrace.model.image import ClusterImage, PartitionState


class ImageChanges:
    def __init__(self, own_id: BrokerId) -> None:
        self._own_id = own_id
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.leader_elections = 0
        """Partitions that this broker was elected leader of, the creation of a topic not included."""
        self.controller_elections = 0

    def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        if new.controller_id == self._own_id != old.controller_id:
            self.controller_elections += 1
        if old.topics is new.topics:
            return
        for name, topic in new.topics.items():
            before = old.topics.get(name)
            if before is None or before is topic or before.topic_id != topic.topic_id:
                continue
            for was, state in zip(before.partitions, topic.partitions, strict=False):
                if state is not was and state.leader == self._own_id:
                    self._count(was, state)

    def _count(self, was: PartitionState, state: PartitionState) -> None:
        if state.leader_epoch != was.leader_epoch:
            self.leader_elections += 1
        before, now = frozenset(was.isr), frozenset(state.isr)
        self.isr_shrinks += bool(before - now)
        self.isr_expands += bool(now - before)
