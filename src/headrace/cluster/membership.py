"""A broker's place in its cluster: a lease that says it is alive, and an epoch that is new each time it takes one.

    register -> STARTING -> (the controller admits it) -> ACTIVE -> begin_stopping -> STOPPING -> close
                   ^                                        |
                   +-------- the lease is lost -------------+

- The key of the lease is made only where there is none. If there is one with the id of our own data directory, its
  process is dead, for we hold the lock of that directory: its lease is ended. Any other is waited for.
- The lease is renewed three times in each session. A broker whose lease has ended registers anew, with a new epoch, and
  is admitted again as if it had been restarted.
- `is_certain` tells by this broker's own clock whether the lease must still hold. While it does, nobody else has been
  made leader of what this broker leads.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import uuid4

from headrace.cluster import layout
from headrace.cluster.metadata import Metadata
from headrace.cluster.store import ABSENT, Compare, LeaseId, MetadataStore, Put, StoreUnavailable
from headrace.config.broker import BrokerSettings
from headrace.model.errors import HeadraceError, StartupError
from headrace.model.features import LATEST_LEVEL
from headrace.model.image import BrokerInfo, BrokerState, ClusterImage, Endpoint
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

RENEWALS_PER_SESSION = 3
_RETRY_S = 0.25
_CLOSE_TIMEOUT_S = 2.0
_LINGER_S = 0.3
"""For clients to hear of the new leaders from the one that they know, which answers on: the other brokers may not have
heard of it yet, and one that is told of the old leader by them waits a second or two before it asks again."""
_SESSIONS_TO_WAIT = 3
"""For the lease of another process with our id, before it is taken for one that stays."""


class Membership:
    """`on_registered`, `on_admitted` and `on_lost` are called each time that it happens; they must not raise."""

    def __init__(
        self,
        store: MetadataStore,
        metadata: Metadata,
        settings: BrokerSettings,
        clock: Clock,
        data_dir_id: str,
        *,
        new_incarnation: Callable[[], str] = lambda: uuid4().hex,
    ) -> None:
        self.on_registered: list[Callable[[], None]] = []
        self.on_admitted: list[Callable[[], None]] = []
        self.on_lost: list[Callable[[], None]] = []
        self.broker_id = metadata.broker_id
        self._store = store
        self._metadata = metadata
        self._rack = settings.broker_rack or None
        self._session_ms = settings.broker_session_timeout_ms
        self._shutdown_s = settings.controlled_shutdown_timeout_ms / 1000
        self._clock = clock
        self._data_dir_id = data_dir_id
        self._new_incarnation = new_incarnation
        self._key = layout.alive_key(self.broker_id)
        self._endpoint: Endpoint | None = None
        self._epoch = ABSENT
        self._lease: LeaseId | None = None
        self._renewed_at_ms = 0.0
        """When the last renewal that succeeded was sent."""
        self._admitted_epoch = ABSENT
        self._is_stopping = False
        self._was_certain = True
        self._has_said_who_waits = False
        self._looked = asyncio.Event()
        """Set whenever the image has changed."""
        self._gone = asyncio.Event()
        """Set when the image says that the lease is not there any more."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def epoch(self) -> int:
        """The broker's epoch; 0 while it has no lease."""
        return self._epoch

    @property
    def lease(self) -> LeaseId | None:
        """For keys that are to live as long as this broker does."""
        return self._lease if self._epoch else None

    @property
    def is_admitted(self) -> bool:
        """Whether the controller has put right all that concerns this broker, since it has this epoch."""
        return self._epoch != ABSENT and self._admitted_epoch == self._epoch

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    def fence(self) -> Compare:
        """Holds while this broker has the lease that it thinks it has; `StoreUnavailable` if it has none."""
        if not self._epoch:
            raise StoreUnavailable(f"broker {self.broker_id} has lost its place in the cluster and is taking a new one")
        return Compare(self._key, self._epoch)

    def is_certain(self) -> bool:
        """Whether nobody can have taken this broker for dead yet."""
        return self._epoch != ABSENT and self._clock.monotonic_ms() - self._renewed_at_ms < self._session_ms

    async def register(self, endpoint: Endpoint) -> None:
        """Take a place in the cluster, reachable by others at `endpoint`. Being admitted comes later.

        `StartupError` if another process has this broker's id and does not go away.
        """
        self._endpoint = endpoint
        self._metadata.subscribe(self._image_changed)
        if self._newcomer(self._metadata.image.brokers.get(self.broker_id), endpoint).has_lost_data:
            log.warning(
                "broker %d had another data directory before. What it had is fetched from the others; it is not "
                "admitted while there are partitions that nobody else has, which the log of the controller names",
                self.broker_id,
            )
        give_up_at_ms = self._clock.monotonic_ms() + _SESSIONS_TO_WAIT * self._session_ms
        why = f"another process is broker {self.broker_id} of this cluster: stop it, or choose another broker.id"
        while True:
            try:
                if await self._try_to_register():
                    break
            except StoreUnavailable as error:
                why = f"broker {self.broker_id} cannot take its place in the cluster: {error}"
            if self._clock.monotonic_ms() >= give_up_at_ms:
                raise StartupError(why)
            await self._image_change(_RETRY_S)
        self._spawn(self._keep(), "membership")

    async def admitted(self) -> None:
        """Wait until the controller has admitted this broker; by whom and when is not known in advance."""
        while not self.is_admitted:
            await self._image_change(_RETRY_S * 4)

    async def begin_stopping(self) -> None:
        """Hand over what this broker leads. Returns when nobody else could lead what it still does, or in time.

        If it has handed over anything, those who still ask this broker have had a moment to hear whom to ask instead.
        """
        self._is_stopping = True
        led = self._led_count()
        try:
            async with asyncio.timeout(self._shutdown_s):
                await self._write_stopping()
                while self._could_hand_over(self._metadata.image):
                    await self._image_change(_RETRY_S * 4)
        except TimeoutError:
            log.warning("stopping without having handed over everything: nobody took it in %.1f s", self._shutdown_s)
        if self._led_count() < led:
            await asyncio.sleep(_LINGER_S)

    def resign(self, reason: str) -> None:
        """Lead nothing any more until the next start, and say why. The rest goes on."""
        if not self._is_stopping:
            self._is_stopping = True
            log.error("broker %d hands over what it leads and takes no more until it is restarted: %s",
                      self.broker_id, reason)  # fmt: skip
            self._spawn(self._write_stopping(), "resigning")

    async def close(self) -> None:
        """Give the place up, so that nobody has to wait for the lease to end."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        lease, self._lease, self._epoch = self._lease, None, ABSENT
        if lease is not None:
            with suppress(HeadraceError, TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await self._store.revoke_lease(lease)

    # Taking a place

    async def _try_to_register(self) -> bool:
        """Whether this broker has a place now. `StoreUnavailable` if the store cannot be asked."""
        assert self._endpoint is not None
        sent_at_ms = self._clock.monotonic_ms()
        lease = await self._store.grant_lease(self._session_ms)
        self._lease = lease
        alive = layout.AliveRecord(self._new_incarnation(), self._data_dir_id, lease, LATEST_LEVEL)
        broker_key = layout.broker_key(self.broker_id)
        known = self._metadata.image.brokers.get(self.broker_id)
        revision = await self._store.commit(
            [
                Compare(self._key, ABSENT),
                self._metadata.unchanged(broker_key),
                # So that the level cannot be raised past this broker while it registers.
                self._metadata.unchanged(layout.CLUSTER),
            ],
            [
                Put(self._key, layout.encode(alive), lease),
                Put(broker_key, layout.encode_broker(self._newcomer(known, self._endpoint))),
            ],
        )
        if revision is None:
            self._lease = None
            await self._store.revoke_lease(lease)
            await self._make_way()
            return False
        self._gone.clear()
        self._epoch = revision
        self._renewed_at_ms = sent_at_ms
        log.info("broker %d is in the cluster with epoch %d and waits to be admitted", self.broker_id, revision)
        for listener in self.on_registered:
            listener()
        self._look(self._metadata.image)
        return True

    def _newcomer(self, known: BrokerInfo | None, endpoint: Endpoint) -> BrokerInfo:
        former = "" if known is None else known.former_data_dir or known.data_dir
        return BrokerInfo(
            self.broker_id,
            endpoint,
            self._rack,
            state=BrokerState.STOPPING if self._is_stopping else BrokerState.STARTING,
            data_dir=self._data_dir_id,
            former_data_dir="" if former == self._data_dir_id else former,
        )

    async def _make_way(self) -> None:
        """End the lease that is in the way if its process is certainly dead."""
        item = (await self._store.snapshot(self._key)).items.get(self._key)
        if item is None:
            return
        found = layout.decode_alive(self.broker_id, item.value)
        if found.data_dir == self._data_dir_id:
            log.info("broker %d was here before with the same data directory: its old lease is ended", self.broker_id)
            await self._store.revoke_lease(LeaseId(found.lease))
        elif not self._has_said_who_waits:
            # Once: it is looked for again several times a second.
            self._has_said_who_waits = True
            log.warning("another process is broker %d: waiting for it to end", self.broker_id)

    # Keeping it

    async def _keep(self) -> None:
        pause_s = self._session_ms / 1000 / RENEWALS_PER_SESSION
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._gone.wait()
            try:
                is_kept = await self._renew()
            except (HeadraceError, TimeoutError) as error:
                self._say_whether_certain(error)
                pause_s = _RETRY_S
                continue
            except Exception:
                log.exception("the lease of broker %d could not be renewed, trying again", self.broker_id)
                pause_s = _RETRY_S
                continue
            pause_s = self._session_ms / 1000 / RENEWALS_PER_SESSION
            if is_kept:
                self._say_whether_certain(None)
            else:
                await self._take_another_place()

    async def _renew(self) -> bool:
        if self._gone.is_set() or self._lease is None:
            return False
        sent_at_ms = self._clock.monotonic_ms()
        async with asyncio.timeout(self._session_ms / 1000):
            is_kept = await self._store.keep_alive(self._lease)
        if not is_kept:
            return False
        self._renewed_at_ms = sent_at_ms
        return True

    def _say_whether_certain(self, error: Exception | None) -> None:
        """Once when it begins and once when it is over."""
        is_certain = self.is_certain()
        if self._was_certain and not is_certain:
            log.warning(
                "the metadata store has not answered for a whole session: what broker %d leads is served on, and "
                "acknowledged only by all replicas in sync (%s)",
                self.broker_id,
                error,
            )
        elif is_certain and not self._was_certain:
            log.info("the metadata store answers again, and broker %d still has its place", self.broker_id)
        self._was_certain = is_certain

    async def _take_another_place(self) -> None:
        log.warning("broker %d was taken for dead: it takes a new place in the cluster", self.broker_id)
        lease, self._lease, self._epoch = self._lease, None, ABSENT
        for listener in self.on_lost:
            listener()
        while True:
            try:
                if lease is not None:
                    await self._store.revoke_lease(lease)  # Another may have removed the key, and not the lease.
                    lease = None
                if await self._try_to_register():
                    break
            except Exception as error:
                is_known = isinstance(error, HeadraceError)
                log.warning("broker %d has no place in the cluster yet, trying again: %s", self.broker_id, error,
                            exc_info=None if is_known else error)  # fmt: skip
            await self._image_change(_RETRY_S)
        self._was_certain = True

    async def _write_stopping(self) -> None:
        """Let everybody know that this broker hands over, however often it takes to say so."""
        while True:
            own = self._metadata.image.brokers.get(self.broker_id)
            if self._epoch and own is not None and own.epoch == self._epoch:
                if own.state is BrokerState.STOPPING:
                    return
                key = layout.broker_key(self.broker_id)
                stopping = Put(key, layout.encode_broker(replace(own, state=BrokerState.STOPPING)))
                with suppress(HeadraceError):
                    await self._store.commit([self.fence(), self._metadata.unchanged(key)], [stopping])
            await self._image_change(_RETRY_S)

    def _led_count(self) -> int:
        topics = self._metadata.image.topics.values()
        return sum(state.leader == self.broker_id for topic in topics for state in topic.partitions)

    def _could_hand_over(self, image: ClusterImage) -> bool:
        return any(
            state.leader == self.broker_id and any(map(image.can_lead, state.isr))
            for topic in image.topics.values()
            for state in topic.partitions
        )

    # What the image says

    def _image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        self._look(new)
        self._looked.set()

    def _look(self, image: ClusterImage) -> None:
        own = image.brokers.get(self.broker_id)
        if not self._epoch or image.revision < self._epoch:
            return
        if own is None or not own.is_alive or own.epoch != self._epoch:
            self._gone.set()
        elif own.state is BrokerState.ACTIVE and not self.is_admitted:
            self._admitted_epoch = self._epoch
            log.info("broker %d is admitted with epoch %d", self.broker_id, self._epoch)
            for listener in self.on_admitted:
                listener()

    async def _image_change(self, timeout_s: float) -> None:
        """Wait for the image to change, or for this long."""
        self._looked.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._looked.wait()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
