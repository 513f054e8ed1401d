"""What a broker has started, to be stopped in the reverse order."""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, Protocol

log = logging.getLogger(__name__)


class StartedPart(Protocol):
    """A part with tasks or threads of its own."""

    def start(self) -> None: ...
    async def stop(self) -> None: ...


class StartedParts(AsyncExitStack):
    """Closing it stops everything that was started with it, the last first."""

    def start(self, part: StartedPart) -> None:
        """Start a part."""
        part.start()
        self.push_async_callback(part.stop)

    def run_in_background(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task until it is stopped; a failure of it is logged."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        task.add_done_callback(_log_failure)

        async def end() -> None:
            task.cancel()
            await asyncio.wait((task,))

        self.push_async_callback(end)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("a background task failed, restart the broker: %s", error, exc_info=error)
