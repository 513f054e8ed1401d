"""Many clients at once that do not log in: connections that send nothing, and logins that fail."""

import asyncio
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.interop.raw_client import SASL_AUTHENTICATE, SASL_HANDSHAKE, encode

SOURCES = ("127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")
CLIENT_HELLO_BEGINS = b"\x16\x03\x01\x02\x00\x01"
_TIMEOUT_S = 60.0


def silent_connections(bootstrap: str, count: int, data: bytes = b"", source: str = SOURCES[0]) -> list[socket.socket]:
    """Connections that send `data` and then nothing."""
    host, port = bootstrap.rsplit(":", 1)
    made = []
    for _ in range(count):
        one = socket.create_connection((host, int(port)), _TIMEOUT_S, (source, 0))
        if data:
            with suppress(OSError):
                one.sendall(data)
        one.setblocking(False)
        made.append(one)
    return made


def count_open(connections: Sequence[socket.socket]) -> int:
    return sum(map(_is_open, connections))


def _is_open(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def failing_logins(bootstrap: str, mechanism: str, count: int, *, at_a_time: int) -> None:
    """Fail to log in so many times, with requests that do not wait for answers."""
    asyncio.run(_fail(bootstrap, mechanism, count, at_a_time))


async def _fail(bootstrap: str, mechanism: str, count: int, at_a_time: int) -> None:
    host, port = bootstrap.rsplit(":", 1)
    tokens = (b"\0alice\0wrong",) if mechanism == "PLAIN" else (b"n,,n=alice,r=abc", b"c=biws,r=abc,p=AAAA")
    frames = [
        encode(SASL_HANDSHAKE, 1, {"mechanism": mechanism}, correlation_id=1),
        *(encode(SASL_AUTHENTICATE, 2, {"auth_bytes": token}, correlation_id=2) for token in tokens),
    ]
    data = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    attempts = iter(range(count))

    async def attacker(source: str) -> None:
        for _ in attempts:
            with suppress(ConnectionError):
                reader, writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
                writer.write(data)
                async with asyncio.timeout(_TIMEOUT_S):
                    await reader.read()
                writer.close()
                await writer.wait_closed()

    async with asyncio.TaskGroup() as attackers:
        for number in range(at_a_time):
            attackers.create_task(attacker(SOURCES[number % len(SOURCES)]))


def resident_mib(pid: int) -> float:
    (line,) = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS")]
    return int(line.split()[1]) / 1024
