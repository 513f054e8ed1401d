"""A process for checks of large schemas, which ends those that take too long.

A thread cannot be ended, and shares the interpreter with the event loop. The process counts the CPU time of a check
itself; the broker ends it if it does not answer at all. It ends by itself with the broker, whose pipe it reads.
"""

import contextlib
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from typing import IO, Any

import msgspec

from headrace.schemas.checks import CheckResult, SchemaCheck, carry_out
from headrace.schemas.errors import InvalidSchema, RegistryBusy, SchemaTooComplex

CPU_LIMIT_S = 0.8
"""For one check; a registration takes two: it is parsed, then compared."""
ANSWER_LIMIT_S = 20.0
"""Until the process is considered stuck: it may get little of a busy machine, and starts with the first check."""
MEMORY_LIMIT_BYTES = 1024 * 1024 * 1024
_LENGTH = struct.Struct(">I")
_PIECE_BYTES = 64 * 1024
_encode = msgspec.msgpack.Encoder().encode
_decode_check = msgspec.msgpack.Decoder(SchemaCheck).decode
_decode_result = msgspec.msgpack.Decoder(CheckResult).decode


class CheckProcess:
    """Carries out one check after the other. `run` blocks: it is called in a worker thread."""

    def __init__(
        self,
        *,
        cpu_limit_s: float = CPU_LIMIT_S,
        answer_limit_s: float = ANSWER_LIMIT_S,
        command: tuple[str, ...] = (),
    ) -> None:
        self._answer_limit_s = answer_limit_s
        self._command = command or (sys.executable, "-P", "-m", __name__, str(cpu_limit_s))
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_closed = False

    def run(self, check: SchemaCheck) -> CheckResult:
        """Carry out a check. Raises `InvalidSchema`, `SchemaTooComplex` if it takes too long, or `RegistryBusy`."""
        with self._lock:
            try:
                result = _decode_result(self._answer(_encode(check)))
            except (OSError, EOFError, msgspec.MsgspecError):
                has_started = self._process is not None
                self._end()
                if self._is_closed or not has_started:
                    raise RegistryBusy("large schemas cannot be checked now: try again") from None
                raise SchemaTooComplex("the schema is too complex: checking it takes too much time or memory") from None
        if result.invalid:
            raise InvalidSchema(result.invalid)
        return result

    def close(self) -> None:
        """End the process, also in the middle of a check."""
        self._is_closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            self._end()

    def _answer(self, request: bytes) -> bytes:
        if self._is_closed:
            raise EOFError
        if self._process is None or self._process.poll() is not None:
            self._end()
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
            )
            if self._is_closed:  # `close` may have found no process to end
                raise EOFError
        source, sink = self._process.stdout, self._process.stdin
        assert source is not None
        assert sink is not None
        deadline_s = time.monotonic() + self._answer_limit_s
        _write_until(deadline_s, sink.fileno(), _LENGTH.pack(len(request)) + request)
        (size,) = _LENGTH.unpack(_read_until(deadline_s, source.fileno(), _LENGTH.size))
        return _read_until(deadline_s, source.fileno(), size)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait()


def _await_pipe(deadline_s: float, pipe: int, event: int) -> None:
    """Wait until a pipe has room or bytes; `EOFError` if the process has no time left."""
    waiting = select.poll()
    waiting.register(pipe, event)
    if not waiting.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
        raise EOFError


def _write_until(deadline_s: float, pipe: int, data: bytes) -> None:
    """Write all bytes: a process that is stopped does not read, and a pipe has room for a few."""
    os.set_blocking(pipe, False)
    left = memoryview(data)
    while left:
        _await_pipe(deadline_s, pipe, select.POLLOUT)
        with contextlib.suppress(BlockingIOError):
            left = left[os.write(pipe, left) :]


def _read_until(deadline_s: float, pipe: int, size: int) -> bytes:
    pieces: list[bytes] = []
    while size:
        _await_pipe(deadline_s, pipe, select.POLLIN)
        piece = os.read(pipe, min(size, _PIECE_BYTES))
        if not piece:
            raise EOFError
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


# -- in the process


def _write_frame(sink: IO[bytes], data: bytes) -> None:
    sink.write(_LENGTH.pack(len(data)) + data)
    sink.flush()


def _read_frame(source: IO[bytes]) -> bytes:
    head = source.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (size,) = _LENGTH.unpack(head)
    data = source.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _too_long(_: int, __: Any) -> None:
    raise SchemaTooComplex("the schema is too complex: checking it takes too long")


def _result(request: bytes, cpu_limit_s: float) -> CheckResult:
    signal.setitimer(signal.ITIMER_PROF, cpu_limit_s)
    try:
        return carry_out(_decode_check(request))
    except InvalidSchema as error:
        return CheckResult(invalid=str(error))
    except MemoryError:
        return CheckResult(invalid="the schema is too complex: checking it takes too much memory")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def main(cpu_limit_s: float) -> None:
    signal.signal(signal.SIGPROF, _too_long)
    # Ctrl-C in a terminal is for the broker, which ends this process when it is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            _write_frame(sys.stdout.buffer, _encode(_result(_read_frame(sys.stdin.buffer), cpu_limit_s)))


if __name__ == "__main__":
    main(float(sys.argv[1]))
