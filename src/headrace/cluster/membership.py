"""A broker's membership in its cluster: a lease for liveness, and a broker epoch that is new with each registration.

    register -> STARTING -> (the controller admits it) -> ACTIVE -> begin_stopping -> STOPPING -> close
                   ^                                        |
                   +-------- the lease is lost -------------+

- /alive/<id> is created only if absent. An existing key with the id of our own data directory belongs to a dead
  process, for we hold that directory's lock: its lease is revoked. Any other lease has to expire first.
- The lease is renewed three times per session. A broker whose lease has expired registers again, with a new epoch, and
  is admitted as if it had been restarted.
- `is_lease_live` says, by this broker's own clock, whether the lease is provably live. While it is, no other broker can
  have been elected leader of a partition that this one leads.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
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
"""How long a stopping broker still answers, so that clients learn the new leaders from it: the other brokers' metadata
may be stale, and a client that gets the old leader from them backs off for a second or two."""
_SESSIONS_TO_WAIT = 3
"""How many sessions to wait for another process with our broker id to end."""


class Membership:
    """Registers this broker and renews its lease.

    The callbacks `on_registered`, `on_admitted` and `on_lost` (the lease) run on each such event and must not raise.
    """

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
        self._listeners: dict[str, tuple[str, int]] = {}
        self._epoch = ABSENT
        self._lease: LeaseId | None = None
        self._renewed_at_ms = 0.0
        """When the last successful renewal was sent."""
        self._admitted_epoch = ABSENT
        self._is_stopping = False
        self._was_lease_live = True
        self._has_logged_conflict = False
        self._image_changes = asyncio.Event()
        """Set whenever the image has changed."""
        self._lease_lost = asyncio.Event()
        """Set when the image shows that the lease is gone."""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def epoch(self) -> int:
        """The broker's epoch; 0 while it has no lease."""
        return self._epoch

    @property
    def lease(self) -> LeaseId | None:
        """The lease for keys that are to be deleted with this broker's registration."""
        return self._lease if self._epoch else None

    @property
    def is_admitted(self) -> bool:
        """True if the controller has made this broker ACTIVE in its current epoch."""
        return self._epoch != ABSENT and self._admitted_epoch == self._epoch

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    def fence(self) -> Compare:
        """A comparison that holds while this broker's lease is live; `StoreUnavailable` if it has none."""
        if not self._epoch:
            raise StoreUnavailable(f"broker {self.broker_id} has lost its lease and is registering again")
        return Compare(self._key, self._epoch)

    def is_lease_live(self) -> bool:
        """True while the lease is provably live: no other broker can have been elected in this one's place."""
        return self._epoch != ABSENT and self._clock.monotonic_ms() - self._renewed_at_ms < self._session_ms

    async def register(self, endpoint: Endpoint, listeners: Mapping[str, Endpoint] | None = None) -> None:
        """Register this broker, which others reach at `endpoint`, and clients at its listeners. Admission comes later.

        `StartupError` if another process with this broker id does not end.
        """
        self._endpoint = endpoint
        self._listeners = {name: (each.host, each.port) for name, each in (listeners or {}).items()}
        self._metadata.subscribe(self._on_image_change)
        if self._registration(self._metadata.image.brokers.get(self.broker_id), endpoint).has_lost_data:
            log.warning(
                "broker %d had another data directory before. Its replicas are fetched from the other brokers; it is "
                "not admitted while it was the only one in sync for a partition: see the controller's log",
                self.broker_id,
            )
        give_up_at_ms = self._clock.monotonic_ms() + _SESSIONS_TO_WAIT * self._session_ms
        why = f"another process is registered as broker {self.broker_id}: stop it, or choose another broker.id"
        while True:
            try:
                if await self._try_to_register():
                    break
            except StoreUnavailable as error:
                why = f"broker {self.broker_id} cannot register: {error}"
            if self._clock.monotonic_ms() >= give_up_at_ms:
                raise StartupError(why)
            await self._wait_for_image_change(_RETRY_S)
        self._spawn(self._renew_periodically(), "membership")

    async def wait_until_admitted(self) -> None:
        """Wait until the controller has admitted this broker."""
        while not self.is_admitted:
            await self._wait_for_image_change(_RETRY_S * 4)

    async def begin_stopping(self) -> None:
        """Controlled shutdown: transfer leadership. Returns when no remaining partition can move, or at the timeout.

        If any leadership moved, it lingers for `_LINGER_S` first, so that clients can learn the new leaders.
        """
        self._is_stopping = True
        led = self._led_count()
        try:
            async with asyncio.timeout(self._shutdown_s):
                await self._write_stopping()
                while self._can_transfer_leadership(self._metadata.image):
                    await self._wait_for_image_change(_RETRY_S * 4)
        except TimeoutError:
            log.warning("stopping with leadership not fully transferred: timed out after %.1f s", self._shutdown_s)
        if self._led_count() < led:
            await asyncio.sleep(_LINGER_S)

    def resign(self, reason: str) -> None:
        """Give up leadership until the next start, and log why. The broker keeps running as a follower."""
        if not self._is_stopping:
            self._is_stopping = True
            log.error("broker %d gives up its leadership and leads nothing until it is restarted: %s",
                      self.broker_id, reason)  # fmt: skip
            self._spawn(self._write_stopping(), "resigning")

    async def close(self) -> None:
        """Revoke the lease, so that the others need not wait for it to expire."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        lease, self._lease, self._epoch = self._lease, None, ABSENT
        if lease is not None:
            with suppress(HeadraceError, TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await self._store.revoke_lease(lease)

    # Registration

    async def _try_to_register(self) -> bool:
        """Try to register; False if another lease is in the way. Raises `StoreUnavailable`."""
        assert self._endpoint is not None
        sent_at_ms = self._clock.monotonic_ms()
        lease = await self._store.grant_lease(self._session_ms)
        self._lease = lease
        alive = layout.AliveRecord(self._new_incarnation(), self._data_dir_id, lease, LATEST_LEVEL, self._listeners)
        broker_key = layout.broker_key(self.broker_id)
        known = self._metadata.image.brokers.get(self.broker_id)
        revision = await self._store.commit(
            [
                Compare(self._key, ABSENT),
                self._metadata.unchanged(broker_key),
                # The feature level cannot be raised past this broker's while it registers.
                self._metadata.unchanged(layout.CLUSTER),
            ],
            [
                Put(self._key, layout.encode(alive), lease),
                Put(broker_key, layout.encode_broker(self._registration(known, self._endpoint))),
            ],
        )
        if revision is None:
            self._lease = None
            await self._store.revoke_lease(lease)
            await self._revoke_stale_lease()
            return False
        self._lease_lost.clear()
        self._epoch = revision
        self._renewed_at_ms = sent_at_ms
        log.info("broker %d is registered with epoch %d and waits to be admitted", self.broker_id, revision)
        for listener in self.on_registered:
            listener()
        self._check_own_record(self._metadata.image)
        return True

    def _registration(self, known: BrokerInfo | None, endpoint: Endpoint) -> BrokerInfo:
        former = "" if known is None else known.former_data_dir or known.data_dir
        return BrokerInfo(
            self.broker_id,
            endpoint,
            self._rack,
            state=BrokerState.STOPPING if self._is_stopping else BrokerState.STARTING,
            data_dir=self._data_dir_id,
            former_data_dir="" if former == self._data_dir_id else former,
        )

    async def _revoke_stale_lease(self) -> None:
        """Revoke the lease that blocks registration if its process is provably dead."""
        item = (await self._store.snapshot(self._key)).items.get(self._key)
        if item is None:
            return
        found = layout.decode_alive(self.broker_id, item.value)
        if found.data_dir == self._data_dir_id:
            log.info("broker %d was registered with the same data directory: revoking its old lease", self.broker_id)
            await self._store.revoke_lease(LeaseId(found.lease))
        elif not self._has_logged_conflict:
            # Once: registration is retried several times a second.
            self._has_logged_conflict = True
            log.warning("another process is registered as broker %d: waiting for it to end", self.broker_id)

    # Renewal

    async def _renew_periodically(self) -> None:
        pause_s = self._session_ms / 1000 / RENEWALS_PER_SESSION
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._lease_lost.wait()
            try:
                is_live = await self._renew()
            except (HeadraceError, TimeoutError) as error:
                self._log_lease_state(error)
                pause_s = _RETRY_S
                continue
            except Exception:
                log.exception("the lease of broker %d could not be renewed, retrying", self.broker_id)
                pause_s = _RETRY_S
                continue
            pause_s = self._session_ms / 1000 / RENEWALS_PER_SESSION
            if is_live:
                self._log_lease_state(None)
            else:
                await self._register_again()

    async def _renew(self) -> bool:
        if self._lease_lost.is_set() or self._lease is None:
            return False
        sent_at_ms = self._clock.monotonic_ms()
        async with asyncio.timeout(self._session_ms / 1000):
            is_live = await self._store.keep_alive(self._lease)
        if not is_live:
            return False
        self._renewed_at_ms = sent_at_ms
        return True

    def _log_lease_state(self, error: Exception | None) -> None:
        """Log once when the lease may have expired, and once when it is live again."""
        is_lease_live = self.is_lease_live()
        if self._was_lease_live and not is_lease_live:
            log.warning(
                "the metadata store has not answered for a whole session: broker %d still serves the partitions it "
                "leads, and acknowledges only what all in-sync replicas have (%s)",
                self.broker_id,
                error,
            )
        elif is_lease_live and not self._was_lease_live:
            log.info("the metadata store answers again, and broker %d still has its lease", self.broker_id)
        self._was_lease_live = is_lease_live

    async def _register_again(self) -> None:
        log.warning("the lease of broker %d expired: it registers again", self.broker_id)
        lease, self._lease, self._epoch = self._lease, None, ABSENT
        for listener in self.on_lost:
            listener()
        while True:
            try:
                if lease is not None:
                    await self._store.revoke_lease(lease)  # The key may have been deleted without the lease.
                    lease = None
                if await self._try_to_register():
                    break
            except Exception as error:
                is_known = isinstance(error, HeadraceError)
                log.warning("broker %d could not register, retrying: %s", self.broker_id, error,
                            exc_info=None if is_known else error)  # fmt: skip
            await self._wait_for_image_change(_RETRY_S)
        self._was_lease_live = True

    async def _write_stopping(self) -> None:
        """Set this broker's state to STOPPING, retrying until the image shows it."""
        while True:
            own = self._metadata.image.brokers.get(self.broker_id)
            if self._epoch and own is not None and own.epoch == self._epoch:
                if own.state is BrokerState.STOPPING:
                    return
                key = layout.broker_key(self.broker_id)
                stopping = Put(key, layout.encode_broker(replace(own, state=BrokerState.STOPPING)))
                with suppress(HeadraceError):
                    await self._store.commit([self.fence(), self._metadata.unchanged(key)], [stopping])
            await self._wait_for_image_change(_RETRY_S)

    def _led_count(self) -> int:
        topics = self._metadata.image.topics.values()
        return sum(state.leader == self.broker_id for topic in topics for state in topic.partitions)

    def _can_transfer_leadership(self, image: ClusterImage) -> bool:
        return any(
            state.leader == self.broker_id and any(map(image.can_lead, state.isr))
            for topic in image.topics.values()
            for state in topic.partitions
        )

    # Image changes

    def _on_image_change(self, old: ClusterImage, new: ClusterImage) -> None:
        self._check_own_record(new)
        self._image_changes.set()

    def _check_own_record(self, image: ClusterImage) -> None:
        own = image.brokers.get(self.broker_id)
        if not self._epoch or image.revision < self._epoch:
            return
        if own is None or not own.is_alive or own.epoch != self._epoch:
            self._lease_lost.set()
        elif own.state is BrokerState.ACTIVE and not self.is_admitted:
            self._admitted_epoch = self._epoch
            log.info("broker %d is admitted with epoch %d", self.broker_id, self._epoch)
            for listener in self.on_admitted:
                listener()

    async def _wait_for_image_change(self, timeout_s: float) -> None:
        """Wait for the image to change, or for this long."""
        self._image_changes.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._image_changes.wait()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
