"""What `headrace work` and its processes tell each other: one JSON object on each line of a socket.

The process says `ApplicationLoaded` or `LoadFailed`, then `Report` every second, `Backlog` whenever it is asked, and
`Ended` if an error ends it. The pool sends `Command`. The end of the socket tells a process that its pool has died.
"""

from typing import Literal

import msgspec

MAX_LINE_BYTES = 1024 * 1024


class WorkSource(msgspec.Struct, frozen=True):
    """A queue with workers, or a group with handlers."""

    kind: Literal["queue", "group"]
    id: str
    topics: list[str] = []
    """Those of a group."""
    start: str = "earliest"

    @property
    def name(self) -> str:
        return f"{self.kind} {self.id}"


class ApplicationLoaded(msgspec.Struct, frozen=True, tag=True):
    """The application was imported; it runs after the command `run`."""

    sources: list[WorkSource]
    files: list[str] = []
    """Of the modules under the current folder."""
    most: int | None = None
    """More processes than this would be in each other's way."""
    most_reason: str = ""


class LoadFailed(msgspec.Struct, frozen=True, tag=True):
    text: str
    files: list[str] = []


class WorkerReport(msgspec.Struct, frozen=True):
    """One handler or worker of a process."""

    source: str
    """The name of its `WorkSource`."""
    handled: int
    failed: int
    lag: int | None
    threads: int | None = None
    """Of a worker whose concurrency is automatic."""
    last_error: str | None = None


class Report(msgspec.Struct, frozen=True, tag=True):
    workers: list[WorkerReport]
    is_running: bool
    files: list[str] = []
    """If more modules were imported since the last report."""


class SourceBacklog(msgspec.Struct, frozen=True):
    source: str
    waiting: int | None
    oldest_s: float | None = None
    cap: int | None = None


class Backlog(msgspec.Struct, frozen=True, tag=True):
    sources: list[SourceBacklog]
    problem: str = ""
    """Why figures are missing."""


class Ended(msgspec.Struct, frozen=True, tag=True):
    text: str


class Command(msgspec.Struct, frozen=True):
    do: Literal["run", "look", "stop"]


Message = ApplicationLoaded | LoadFailed | Report | Backlog | Ended

decode_message = msgspec.json.Decoder(Message).decode
decode_command = msgspec.json.Decoder(Command).decode


def encode_line(message: "Message | Command") -> bytes:
    return msgspec.json.encode(message) + b"\n"
