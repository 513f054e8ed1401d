"""The queues of this broker, for links that copy the state of queues, and for reversals."""

from concurrent.futures import Executor

from headrace.model.links import MirrorState
from headrace.queues.engine.mirrored_state import check
from headrace.queues.service import QueueService
from headrace.queues.state_mirror import StateMirror
from headrace.replication.partition import Partition


class LinkQueues:
    def __init__(self, queues: QueueService, workers: Executor) -> None:
        self._queues = queues
        self._workers = workers

    def state_copy(self, partition: Partition) -> StateMirror:
        return StateMirror(self._queues.state, partition, self._workers)

    def check(self, key: bytes, value: bytes) -> None:
        check(key, value)

    async def cut(self, partition: Partition, end: int) -> None:
        """Drop the state of the messages of a queue from an offset on, before its log is truncated."""

        def is_reversing() -> bool:
            mirror = partition.mirror
            return partition.is_leader and mirror is not None and mirror.state is MirrorState.REVERSING

        await self.state_copy(partition).cut(end, is_reversing)
