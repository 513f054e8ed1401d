"""The registry of a cluster: any broker takes requests, and the leader of `_schemas` answers them.

A request to another broker is sent on to the leader, reads included: so what one broker has answered, all others know.
The leader answers when everything before the answer is committed, and only while its lease is certain: what is already
registered, deleted or refused may rest on records of another request. Other parts of a broker look schemas up through
`lookup`, which caches.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

import msgspec

from headrace.cluster.metadata import Metadata
from headrace.coordinator.completion import committed
from headrace.coordinator.coordinator import Coordinator
from headrace.coordinator.machine import InternalRecord, Outcome
from headrace.coordinator.shard import Shard
from headrace.model.backoff import ExponentialDelay, RetryDelays
from headrace.model.errors import (
    CoordinatorError,
    HeadraceError,
    NotCoordinator,
    NotLeader,
    PeerUnavailable,
    UnsupportedFeature,
)
from headrace.model.features import SCHEMAS_LEVEL, needed
from headrace.model.image import SCHEMAS_TOPIC
from headrace.replication.calls import Call, answer_to, ask, unknown_call
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock
from headrace.schemas.checker import SchemaChecker
from headrace.schemas.errors import SchemaFault
from headrace.schemas.lookup import SchemaLookup
from headrace.schemas.machine import SchemaMachine
from headrace.schemas.operations.all_operations import find_operation
from headrace.schemas.operations.table import CommitChange, RegistryCall
from headrace.schemas.requests import RegistryReply, RegistryRequest, refusal, reply
from headrace.schemas.resolved import IdOrGuid, Membership, MembershipCall, ResolvedSchema, SchemaTextCall, resolve

A = TypeVar("A")

Shows = Callable[[str, str], Callable[[str], bool]]
"""From a principal and its host to whether it may see a subject."""

_TOPIC_SETTINGS = {"cleanup.policy": "compact"}
_SHARD = "schemas"
_LANE = "schemas"
_TIMEOUT_S = 15.0
_PATIENCE_MS = 10_000
_LOOKUP_PATIENCE_MS = 4_000
"""Less than a lookup waits, so that its error says why."""
_RETRY_DELAY_S = ExponentialDelay(0.02, 0.5)


class RegistryForward(Call, frozen=True):
    """A request that another broker has taken, with the principal and the host of its client."""

    method: str
    parts: tuple[str, ...]
    query: dict[str, str]
    body: bytes
    principal: str
    host: str
    is_repeat: bool = False

    level = SCHEMAS_LEVEL

    @property
    def request(self) -> RegistryRequest:
        return RegistryRequest(self.method, self.parts, self.query, self.body, self.is_repeat)


class RegistryNotReady(SchemaFault):
    """The leader of the registry changes, or cannot be reached."""

    status = 500
    code = 50003


AnyRegistryCall = RegistryForward | MembershipCall | SchemaTextCall
C = TypeVar("C", RegistryForward, MembershipCall, SchemaTextCall)

_decode_call: Callable[[bytes], AnyRegistryCall] = msgspec.msgpack.Decoder(AnyRegistryCall).decode


class RegistryService:
    def __init__(
        self,
        *,
        metadata: Metadata,
        partitions: PartitionTable,
        clock: Clock,
        workers: Executor,
        shows: Shows,
        is_certain: Callable[[], bool] = lambda: True,
        peers: Peers | None = None,
    ) -> None:
        """Without `peers` this broker is alone. `is_certain` tells whether this broker's lease is live."""
        self._metadata = metadata
        self._clock = clock
        self._peers = peers
        self._shows = shows
        self._is_certain = is_certain
        self._checker = SchemaChecker(workers)
        self.answered: dict[tuple[str, int], int] = {}
        """Requests that this broker has answered, by operation and status."""
        self.lookup = SchemaLookup(clock, self._memberships, self._resolved)
        """Schemas by id, from a cache."""
        self._coordinator: Coordinator[SchemaMachine] = Coordinator(
            SCHEMAS_TOPIC,
            partition_count=1,
            topic_settings=_TOPIC_SETTINGS,
            make_machine=lambda _: SchemaMachine(),
            metadata=metadata,
            partitions=partitions,
            clock=clock,
            workers=workers,
        )

    def start(self) -> None:
        self._coordinator.start()

    async def stop(self) -> None:
        await self.lookup.stop()
        await self._coordinator.stop()
        self._checker.close()

    # -- on any broker

    async def answer(self, request: RegistryRequest, principal: str, host: str) -> RegistryReply:
        """Answer a request of a client; errors of requests are replies, too."""
        call = RegistryForward(request.method, request.parts, request.query, request.body, principal, host)
        name = "unknown"
        try:
            operation = find_operation(request).operation
            name = f"{operation.method} /{'/'.join(operation.path)}"
            answer = await self._routed(call, RegistryReply, self._carry_out)
        except SchemaFault as error:
            answer = refusal(error)
        except HeadraceError as error:
            answer = reply({"error_code": RegistryNotReady.code, "message": str(error)}, RegistryNotReady.status)
        self.answered[name, answer.status] = self.answered.get((name, answer.status), 0) + 1
        return answer

    # -- for links to other clusters

    async def prepare(self) -> None:
        """Create the topic of the registry if it does not exist."""
        level = self._metadata.image.feature_level
        if level < SCHEMAS_LEVEL:
            raise UnsupportedFeature(needed("the schema registry", SCHEMAS_LEVEL, level))
        await self._coordinator.ensure_topic()

    @property
    def is_here(self) -> bool:
        """True if this broker leads the registry."""
        return self._coordinator.is_here(_SHARD)

    @property
    def machine(self) -> SchemaMachine:
        """The state of the registry, on the broker that leads it. Raises `CoordinatorError` or `NotCoordinator`."""
        shard = self._coordinator.shard(_SHARD)
        shard.check()
        return shard.machine

    async def change(self, change: Callable[[SchemaMachine], Outcome[InternalRecord, A]]) -> A:
        """Write the records of a change that no client has asked for; returns when they are committed."""
        shard = self._coordinator.shard(_SHARD)
        shard.check()
        return await _ShardCommit(shard)(lambda: change(shard.machine))

    # -- inside

    async def _memberships(self, wanted: Sequence[Membership]) -> Sequence[bool]:
        call = MembershipCall(tuple(wanted))
        return await self._routed(call, list[bool], self._read_memberships, _LOOKUP_PATIENCE_MS)

    async def _resolved(self, key: IdOrGuid) -> ResolvedSchema | None:
        call = SchemaTextCall(key)
        return await self._routed(call, ResolvedSchema | None, self._read_schema, _LOOKUP_PATIENCE_MS)

    async def _routed(
        self, call: C, kind: Any, here: Callable[[C], Awaitable[A]], patience_ms: int = _PATIENCE_MS
    ) -> A:
        """Ask the leader, or answer `here` if it is this broker.

        While it changes, the call is repeated: the same schema gets the same id, settings are set to the same value,
        and a deletion that is marked as repeated finds that it was done.
        """
        level = self._metadata.image.feature_level
        if level < SCHEMAS_LEVEL:
            raise UnsupportedFeature(needed("the schema registry", SCHEMAS_LEVEL, level))
        deadline_ms = self._clock.monotonic_ms() + patience_ms
        delays = RetryDelays(_RETRY_DELAY_S)
        while True:
            try:
                await self._coordinator.ensure_topic()
                leader = self._coordinator.leader_for(_SHARD)
                if self._peers is None or leader == self._metadata.broker_id:
                    return await here(call)
                answer: A = await ask(self._peers, leader, call, kind, lane=_LANE, timeout_s=_TIMEOUT_S)
                return answer
            except (CoordinatorError, NotCoordinator, NotLeader, PeerUnavailable) as error:
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise RegistryNotReady(f"the registry is not available now: {error}") from None
                if isinstance(call, RegistryForward):
                    call = msgspec.structs.replace(call, is_repeat=True)
            await asyncio.sleep(delays.next())

    # -- on the leader

    async def serve(self, call: bytes) -> bytes:
        """Carry out a request that another broker has sent on; the encoded answer."""
        try:
            asked = _decode_call(call)
        except msgspec.MsgspecError as error:
            return unknown_call(str(error))
        match asked:
            case MembershipCall():
                return await answer_to(lambda: self._read_memberships(asked))
            case SchemaTextCall():
                return await answer_to(lambda: self._read_schema(asked))
        return await answer_to(lambda: self._carry_out(asked))

    async def _read_memberships(self, call: MembershipCall) -> list[bool]:
        return await self._read(lambda machine: [machine.belongs(*each) for each in call.wanted])

    async def _read_schema(self, call: SchemaTextCall) -> ResolvedSchema | None:
        return await self._read(lambda machine: resolve(machine, call.key))

    async def _read(self, read: Callable[[SchemaMachine], A]) -> A:
        shard = self._coordinator.shard(_SHARD)
        shard.check()
        answer = read(shard.machine)
        await self._when_certain(_ShardCommit(shard))
        return answer

    async def _when_certain(self, commit: "_ShardCommit") -> None:
        """Wait until what was read is committed; `NotCoordinator` if another broker may lead already."""
        await commit(lambda: Outcome((), None))
        if not self._is_certain():
            raise NotCoordinator("the lease of this broker is not certain")

    async def _carry_out(self, forwarded: RegistryForward) -> RegistryReply:
        request = forwarded.request
        shard = self._coordinator.shard(_SHARD)
        shard.check()
        found = find_operation(request)
        commit = _ShardCommit(shard)
        call = RegistryCall(
            request,
            found.names,
            found.context,
            shard.machine,
            self._checker.of(f"{forwarded.principal} {forwarded.host}"),
            commit,
            self._shows(forwarded.principal, forwarded.host),
            self._metadata.image.cluster_id,
        )
        try:
            answer = await found.operation.handler(call)
        except SchemaFault as error:
            answer = refusal(error)
        await self._when_certain(commit)
        return answer


class _ShardCommit(CommitChange):
    def __init__(self, shard: Shard[SchemaMachine]) -> None:
        self._shard = shard
        self._machine = shard.machine

    async def __call__(self, change: Callable[[], Outcome[InternalRecord, A]]) -> A:
        if self._shard.machine is not self._machine:
            raise NotCoordinator("the registry was loaded again since the request began")
        return await committed(self._shard.run(lambda _: change()))
