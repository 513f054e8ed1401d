"""The queues of a broker."""

from concurrent.futures import Executor

import msgspec

from headrace.cluster.metadata import Metadata
from headrace.queues.calls import answer_to
from headrace.queues.store import ReplicatedState, StateCall
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock

_decode_call = msgspec.msgpack.Decoder(StateCall).decode


class QueueService:
    def __init__(
        self,
        *,
        metadata: Metadata,
        partitions: PartitionTable,
        clock: Clock,
        workers: Executor,
        peers: Peers | None = None,
    ) -> None:
        """Without `peers` this broker is alone."""
        self.state = ReplicatedState(
            metadata=metadata, partitions=partitions, clock=clock, workers=workers, peers=peers
        )

    def start(self) -> None:
        self.state.start()

    async def stop(self) -> None:
        await self.state.stop()

    async def serve(self, call: bytes) -> bytes:
        """Do what another broker asks for."""
        asked = _decode_call(call)
        return await answer_to(lambda: self.state.serve(asked))
