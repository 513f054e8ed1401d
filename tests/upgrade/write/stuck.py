"""`headrace serve` that can be made to stop between two steps: `python -m tests.upgrade.write.stuck serve …`.

From the moment on that the file named by TEST_STUCK_FILE exists,

- a transaction that is decided gets its marker on the first partition of each topic and on no other, so that it stays
  in PrepareCommit;
- a page of messages that is moved arrives at its destination, and its source never hears of that.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from headrace.cli.main import main
from headrace.queues.move.transfer import TransferPage, TransferStream
from headrace.runtime.deferred import Deferred
from headrace.testing.process import BrokerProcess
from headrace.transactions.marker_sender import MarkerSender

STUCK_FILE = "TEST_STUCK_FILE"


class StuckBroker(BrokerProcess):
    """The process. `stick` makes it stop between two steps."""

    @property
    def command(self) -> list[str]:
        return [__name__ if part == "headrace" else part for part in super().command]

    def stick(self) -> None:
        Path(self.env[STUCK_FILE]).touch()


def _is_stuck() -> bool:
    return Path(os.environ[STUCK_FILE]).exists()


def _patch() -> None:
    write, send_page = MarkerSender.write, TransferStream._send_page

    def write_some(self: MarkerSender, place: tuple[str, int], *rest: Any) -> Any:
        is_first = place[1] == 0 and not place[0].startswith("__")
        return Deferred() if _is_stuck() and not is_first else write(self, place, *rest)

    async def send_and_hang(self: TransferStream, page: TransferPage) -> Any:
        sent = await send_page(self, page)
        if _is_stuck() and self._stream == "move":
            await asyncio.Event().wait()
        return sent

    MarkerSender.write = write_some  # type: ignore[method-assign, assignment]
    TransferStream._send_page = send_and_hang  # type: ignore[method-assign]


if __name__ == "__main__":
    _patch()
    sys.argv[0] = "headrace"
    main()
