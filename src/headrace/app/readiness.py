"""Whether a broker can serve clients now, and if not, why.

It is ready when the controller has admitted it, its lease is live, its data directory takes writes, and it is not
stopping. Logs are open before it listens. Without a lease a broker still serves what it leads, but other brokers may
have taken over: new clients had better go elsewhere.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

from headrace.cluster.membership import Membership
from headrace.runtime.volume import why_not_writable

_FRESH_S = 1.0
"""How long the result of a write to the disk is used: anyone may ask, and each write costs some."""


class Readiness:
    def __init__(
        self,
        data_dir: Path,
        workers: Executor,
        *,
        membership: Callable[[], Membership | None],
        failure: Callable[[], BaseException | None],
    ) -> None:
        """`failure` is why the data directory takes no more writes."""
        self._data_dir = data_dir
        self._workers = workers
        self._membership = membership
        self._failure = failure
        self._is_stopping = False
        self._disk: asyncio.Future[str] | None = None
        self._disk_from_s = 0.0

    def stop(self) -> None:
        """Not ready any more: the broker has begun to stop."""
        self._is_stopping = True

    async def obstacles(self) -> list[str]:
        """Why this broker is not ready, in words; empty if it is."""
        found = [self._of_membership(), self._of_failure() or await self._of_disk()]
        return [each for each in found if each]

    def _of_membership(self) -> str:
        membership = self._membership()
        if self._is_stopping or (membership is not None and membership.is_stopping and self._failure() is None):
            return "the broker is stopping"
        if membership is None or (membership.is_admitted and membership.is_lease_live()):
            return ""
        if not membership.epoch:
            return "the broker is not registered: it waits for the metadata store"
        if not membership.is_admitted:
            return "the broker is registered, and waits until the controller admits it"
        return "the broker's lease may have ended: the metadata store does not answer"

    def _of_failure(self) -> str:
        failure = self._failure()
        return f"the data directory takes no more writes since it failed: {failure}" if failure is not None else ""

    async def _of_disk(self) -> str:
        """Try the disk, at most once in `_FRESH_S`; requests at the same time wait for the same try."""
        loop = asyncio.get_running_loop()
        disk = self._disk
        if disk is None or (disk.done() and loop.time() - self._disk_from_s >= _FRESH_S):
            self._disk = disk = loop.run_in_executor(self._workers, why_not_writable, self._data_dir)
            self._disk_from_s = loop.time()
        reason = await asyncio.shield(disk)
        return f"the data directory is not writable: {reason}" if reason else ""
