"""How `headrace cluster dev start` and `kill` talk to the `headrace cluster dev` that runs on a folder.

It listens on a Unix socket in the folder. A request is a line of JSON, `{"do": "start", "who": "2"}`, and so is the
answer: `{"done": "…"}` or `{"failed": "…"}`, each with a sentence. The socket is named through a descriptor of the
folder, since the path of a socket may have a hundred characters only.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

from headrace.cli.errors import CommandFailed
from headrace.model.errors import HeadraceError

_SOCKET = ".control"
_MAX_BYTES = 64 * 1024
_PATIENCE_S = 180.0
"""Longer than a broker may take to be ready."""

Do = Callable[[str], Awaitable[str]]


@contextlib.contextmanager
def _socket_in(folder: Path) -> Iterator[str]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{_SOCKET}"
    finally:
        os.close(descriptor)


class Listener:
    """Takes requests while it is entered."""

    def __init__(self, folder: Path, actions: Mapping[str, Do]) -> None:
        self._folder = folder
        self._actions = actions
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "Listener":
        with _socket_in(self._folder) as path:
            self._server = await asyncio.start_unix_server(self._answer, path, limit=_MAX_BYTES)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        (self._folder / _SOCKET).unlink(missing_ok=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, ValueError):
            request = json.loads(await reader.readline())
            try:
                answer = {"done": await self._actions[str(request["do"])](str(request["who"]))}
            except HeadraceError as error:
                answer = {"failed": str(error)}
            except (KeyError, TypeError):
                answer = {"failed": "this `headrace cluster dev` is of another version: restart it"}
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()


def ask_running(folder: Path, do: str, who: str) -> str:
    """The sentence that the cluster answers with; `CommandFailed` where it refuses, or none runs there."""
    try:
        with _socket_in(folder) as path, socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PATIENCE_S)
            connection.connect(path)
            connection.sendall(json.dumps({"do": do, "who": who}).encode() + b"\n")
            with connection.makefile("rb") as answers:
                answer = json.loads(answers.readline(_MAX_BYTES) or b"{}")
    except TimeoutError:
        raise CommandFailed(f"the cluster in {folder} did not answer in {_PATIENCE_S:.0f} s") from None
    except OSError:
        raise CommandFailed(
            f"no `headrace cluster dev` runs on {folder}: start it, or name its folder with --data-dir"
        ) from None
    if "done" in answer:
        return str(answer["done"])
    raise CommandFailed(str(answer.get("failed", "the cluster was stopped meanwhile")))
