"""The physical limit: servers that do nothing but move the bytes. What a broker can be measured against.

    floor.py sink     takes the same framed requests as a broker, writes the bytes to a file as they arrive, and answers
                      each whole frame; with --sync fdatasync the answer waits for a group-committed fdatasync
    floor.py source   answers each request with the next piece of that file: sendfile, or pread and write

Both run on uvloop in one thread (and one more for fdatasync), as the broker does.
"""

import argparse
import asyncio
import os
import socket
from struct import Struct
from typing import cast

import uvloop

_SIZE = Struct(">i")
_BUFFER_BYTES = 1 << 18


class File:
    """The file of the sink. A run that starts on a quiet server starts it afresh."""

    def __init__(self, path: str, *, sync: bool) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self._sync = sync
        self._waiting: list[tuple[asyncio.Transport, bytes]] = []
        self._syncing = False
        self.connections = 0

    def connected(self) -> None:
        self.connections += 1
        if self.connections == 1:
            os.ftruncate(self.fd, 0)
            os.lseek(self.fd, 0, os.SEEK_SET)

    def answer(self, transport: asyncio.Transport, data: bytes) -> None:
        if not self._sync:
            transport.write(data)
            return
        self._waiting.append((transport, data))
        if not self._syncing:
            self._syncing = True
            self._task = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            answers, self._waiting = self._waiting, []
            await loop.run_in_executor(None, os.fdatasync, self.fd)
            for transport, data in answers:
                if not transport.is_closing():
                    transport.write(data)
        self._syncing = False


class Sink(asyncio.BufferedProtocol):
    def __init__(self, file: File, answer_bytes: int) -> None:
        self._file = file
        self._buffer = bytearray(_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._head = self._correlation = b""
        self._left = 0
        self._answer_tail = bytes(answer_bytes - 8)
        self._answer_size = _SIZE.pack(answer_bytes - 4)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._file.connected()

    def connection_lost(self, exc: Exception | None) -> None:
        self._file.connections -= 1

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        os.write(self._file.fd, self._view[:nbytes])
        at = 0
        answers = []
        while at < nbytes:
            if self._left > nbytes - at:
                self._left -= nbytes - at
                break
            at += self._left
            if self._left:
                answers.append(self._answer_size + self._correlation + self._answer_tail)
                self._left = 0
            # The twelve bytes that hold the length, the API and the correlation id may arrive in pieces.
            need = 12 - len(self._head)
            self._head += bytes(self._view[at : min(at + need, nbytes)])
            if len(self._head) < 12:
                break
            at += need
            self._left = _SIZE.unpack_from(self._head)[0] - 8
            self._correlation = self._head[8:12]
            self._head = b""
        if answers:
            self._file.answer(self._transport, b"".join(answers))


class Source:
    """One connection of the source: each request frame, whatever is in it, gets the next piece of the file."""

    def __init__(self, sock: socket.socket, fd: int, piece_bytes: int, *, sendfile: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._fd = fd
        self._piece_bytes = piece_bytes
        self._sendfile = sendfile
        self._size = os.fstat(fd).st_size
        self._position = 0
        self._left = 0
        self._pending = bytearray()
        self._loop.add_reader(sock, self._readable)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._sock)
            self._sock.close()
            return
        self._pending += data
        while len(self._pending) >= 4:
            size = 4 + _SIZE.unpack_from(self._pending)[0]
            if len(self._pending) < size:
                return
            del self._pending[:size]
            if self._size < self._piece_bytes or self._position + self._piece_bytes > self._size:
                self._size = os.fstat(self._fd).st_size
                self._position = 0
            self._left = min(self._piece_bytes, self._size)
            self._sock.send(_SIZE.pack(self._left))
            self._loop.remove_reader(self._sock)
            if not self._push():
                self._loop.add_writer(self._sock, self._writable)
            else:
                self._loop.add_reader(self._sock, self._readable)

    def _writable(self) -> None:
        if self._push():
            self._loop.remove_writer(self._sock)
            self._loop.add_reader(self._sock, self._readable)

    def _push(self) -> bool:
        try:
            while self._left:
                if self._sendfile:
                    done = os.sendfile(self._sock.fileno(), self._fd, self._position, self._left)
                else:
                    done = self._sock.send(os.pread(self._fd, self._left, self._position))
                self._position += done
                self._left -= done
        except BlockingIOError:
            return False
        except OSError:
            self._left = 0
        return True


async def serve(args: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    if args.mode == "sink":
        file = File(args.file, sync=args.sync == "fdatasync")
        server = await loop.create_server(lambda: Sink(file, args.answer_bytes), "127.0.0.1", args.port)
        await server.serve_forever()
    fd = os.open(args.file, os.O_RDONLY)
    listener = socket.create_server(("127.0.0.1", args.port), backlog=128)
    listener.setblocking(False)
    sources = []
    while True:
        sock, _ = await loop.sock_accept(listener)
        sock.setblocking(False)
        sources.append(Source(sock, fd, args.piece_bytes, sendfile=args.how == "sendfile"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    sink, source = modes.add_parser("sink"), modes.add_parser("source")
    for mode in (sink, source):
        mode.add_argument("--port", type=int, required=True)
        mode.add_argument("--file", required=True)
    sink.add_argument("--sync", choices=("none", "fdatasync"), default="none")
    sink.add_argument("--answer-bytes", type=int, default=64)
    source.add_argument("--how", choices=("sendfile", "write"), default="sendfile")
    source.add_argument("--piece-bytes", type=int, default=1 << 20)
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
