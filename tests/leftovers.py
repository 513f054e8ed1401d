"""With `--leftovers` a test leaves nothing behind: what it started has ended and what it changed is as it was, or it
fails.

Otherwise it is a stranger that fails, at some time on some machine: by a line in the log, a warning of the garbage
collector or a port that is taken. Things of fixtures that outlive a test (of a module, of the session) may stay, and
what those start later. Whatever is about to go is waited for.
"""

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import stat
import sys
import threading
import time
import tracemalloc
import uuid
import warnings
from collections.abc import Callable, Generator, Iterator
from concurrent.futures.thread import _worker
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PATIENCE_S = 60.0
"""How long things may take to go once a test has ended. Only a test that fails waits this long."""

_MARK = "TEST_PROCESS_OF_HEADRACE"
"""The environment variable by which a process is known that a test started, also where its parent is gone."""

_STAYS = "_outlives_tests"


def processes_started_here() -> dict[int, list[str]]:
    """Command lines by process id: our children and whatever they have started. Those that have ended do not count."""
    found = {}
    own = os.getpid()
    mark = f"{_MARK}={os.environ[_MARK]}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit() or (process_id := int(name)) == own or process_id in _STRANGERS:
            continue
        try:
            state, parent = _state_and_parent(process_id)
            if state in "ZX":
                continue
            if parent == own or mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                found[process_id] = Path(f"/proc/{name}/cmdline").read_text(errors="replace").rstrip("\0").split("\0")
            else:
                _STRANGERS.add(process_id)
        except OSError:  # the kernel's, or just gone
            _STRANGERS.add(process_id)
    return found


_STRANGERS: set[int] = set()


def _state_and_parent(process_id: int) -> tuple[str, int]:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[1])


def ancestors(process_id: int) -> Iterator[int]:
    with suppress(OSError):
        while process_id > 1:
            yield process_id
            process_id = _state_and_parent(process_id)[1]


def native_clients() -> set[int]:
    """The main threads of librdkafka: one for each producer, consumer and admin client that is not closed."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        with suppress(OSError):
            if Path(f"/proc/self/task/{task}/comm").read_text() == "rdk:main\n":
                found.add(int(task))
    return found


def listening() -> set[str]:
    """Addresses on which this process accepts connections."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        # Whatever is closed meanwhile does not count, nor what is no socket.
        with suppress(OSError):
            if stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode):
                with socket.socket(fileno=os.dup(int(name))) as one:
                    if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        found.add(str(one.getsockname()))
    return found


_NOT_SHARED = {
    "PYTEST_CURRENT_TEST",
    "GRPC_VERBOSITY",  # set when the module that talks to etcd is imported
}


def shared_state() -> dict[str, object]:
    """What all tests of a process share and each leaves as it found it."""
    state: dict[str, object] = {
        f"environment variable {name}": value for name, value in os.environ.items() if name not in _NOT_SHARED
    }
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1, signal.SIGCHLD):
        state[f"handler of {number.name}"] = signal.getsignal(number)
    for name in ["root", *logging.root.manager.loggerDict]:
        if name == "root" or name.startswith("headrace"):
            one = logging.getLogger(name)
            if any(isinstance(each, logging.NullHandler) for each in one.handlers):
                continue  # a module made it so when it was imported
            for what, value, usual in (
                ("handlers", list(one.handlers), []),
                ("level", one.level, logging.NOTSET),
                ("propagation", one.propagate, True),
                ("being disabled", one.disabled, False),
            ):
                if value != usual:
                    state[f"{what} of the logger {name}"] = value
    state |= {
        "level at which logging is disabled": logging.root.manager.disable,
        "working directory": Path.cwd(),
        "network of the main thread": os.readlink("/proc/thread-self/ns/net"),
        "limit of open files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "policy of event loops": asyncio.get_event_loop_policy(),
        "default timeout of sockets": socket.getdefaulttimeout(),
        "whether memory is traced": tracemalloc.is_tracing(),
        "whether garbage is collected": gc.isenabled(),
        "thresholds of the garbage collector": gc.get_threshold(),
        "interval between threads": sys.getswitchinterval(),
        "limit of recursion": sys.getrecursionlimit(),
        "module path": list(sys.path),
    }
    return state


@dataclass
class Running:
    """What runs in this process and below it."""

    threads: set[threading.Thread] = field(default_factory=set)
    processes: dict[int, list[str]] = field(default_factory=dict)
    clients: set[int] = field(default_factory=set)
    listening: set[str] = field(default_factory=set)

    @classmethod
    def now(cls) -> "Running":
        return cls(set(threading.enumerate()), processes_started_here(), native_clients(), listening())


class Leftovers:
    """The plugin; `tests/conftest.py` registers it for `--leftovers`."""

    def __init__(self) -> None:
        os.environ[_MARK] = uuid.uuid4().hex
        self._kept = Running()
        self._before = Running()
        self._after: Running | None = None
        self._state: dict[str, object] = {}
        self._kept_state: set[str] = set()
        self._lasting: set[str] = set()
        """Names of fixtures of modules and of the session that were set up so far."""
        self._has_failed = False
        self._module: object = None
        self._uses_lasting = False
        """Whether the test uses something that outlives it, which may start threads of a pool when it is used."""
        self._undo = _tell_threads_who_started_them()

    def pytest_unconfigure(self) -> None:
        self._undo()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function":
            return (yield)
        if not fixturedef.func.__module__.startswith("_pytest"):
            self._lasting.add(fixturedef.argname)
        with self._keeping():
            return (yield)

    @contextmanager
    def _keeping(self) -> Iterator[None]:
        before, state = Running.now(), shared_state()
        try:
            yield
        finally:
            after = Running.now()
            for thread in after.threads - before.threads:
                setattr(thread, _STAYS, True)
            self._kept.processes |= {
                process_id: command
                for process_id, command in after.processes.items()
                if process_id not in before.processes
            }
            self._kept.clients |= after.clients - before.clients
            self._kept.listening |= after.listening - before.listening
            changed = shared_state()
            for name in state.keys() | changed.keys():
                if state.get(name) != changed.get(name):
                    self._kept_state.add(name)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        self._has_failed = False
        if item.parent is not self._module:
            self._module = item.parent
            # What is there before a module's tests is not theirs, and is not looked through after each of them.
            _collect()
            gc.freeze()
        self._before, self._state = self._after or Running.now(), shared_state()
        self._after = None
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        self._has_failed |= report.failed
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
        yield
        # A client of librdkafka ends when nobody has it any more.
        getattr(item, "funcargs", {}).clear()
        # What a failed test had in hand is held by its traceback.
        if not self._has_failed:
            self._uses_lasting = not self._lasting.isdisjoint(getattr(item, "fixturenames", ()))
            self._collect_garbage()
            self._wait_for_the_end()
            self._compare_state()

    def _collect_garbage(self) -> None:
        """Warnings about what was not closed come now, in the test that did not close it."""
        for line in _collect():
            warnings.warn(pytest.PytestUnraisableExceptionWarning(line), stacklevel=1)

    def _wait_for_the_end(self) -> None:
        started_s = time.monotonic()
        pause_s = 0.001
        while left := self._left():
            waited_s = time.monotonic() - started_s
            if waited_s > PATIENCE_S:
                pytest.fail(f"{'; '.join(left)}: still there {waited_s:.0f} s after the test", pytrace=False)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.1)

    def _left(self) -> list[str]:
        now, before, kept = Running.now(), self._before, self._kept
        self._after = now
        left = [
            f"the thread {thread.name} ({getattr(thread, '_target', None)})"
            for thread in now.threads - before.threads
            if not getattr(thread, _STAYS, False)
            and not isinstance(thread, threading._DummyThread)
            and not thread.name.startswith("pytest_timeout")
            and not _is_of_a_library(thread)
            and not (self._uses_lasting and getattr(thread, "_target", None) is _worker)
        ]
        files = {argument for command in kept.processes.values() for argument in _files(command)}
        left += [
            f"the process {process_id} ({' '.join(command)})"
            for process_id, command in now.processes.items()
            if process_id not in before.processes
            and files.isdisjoint(_files(command))
            and not any(one in kept.processes for one in ancestors(process_id))
        ]
        left += [f"a client of librdkafka (thread {one})" for one in now.clients - before.clients - kept.clients]
        left += [f"a socket that listens on {one}" for one in now.listening - before.listening - kept.listening]
        return left

    def _compare_state(self) -> None:
        state, now = self._state, shared_state()
        names = sorted((state.keys() | now.keys()) - self._kept_state)
        changed = [name for name in names if state.get(name) != now.get(name)]
        if changed:
            told = "; ".join(f"{name} was {state.get(name)!r} and is {now.get(name)!r}" for name in changed)
            pytest.fail(f"the test changed what others share: {told}", pytrace=False)


def _collect() -> list[str]:
    """Collect garbage, and what was said of it."""
    said: list[str] = []

    def note(one: "sys.UnraisableHookArgs") -> None:
        said.append(f"{one.err_msg or 'Exception ignored in'}: {one.object!r}: {one.exc_value!r}")

    usual, sys.unraisablehook = sys.unraisablehook, note
    try:
        gc.collect()
    finally:
        sys.unraisablehook = usual
    return said


def _is_of_a_library(thread: threading.Thread) -> bool:
    """py4j has threads for what a session of Spark calls, and pyiceberg one pool for all tables, for good."""
    if getattr(getattr(thread, "_target", None), "__module__", "").startswith("py4j."):
        return True
    module = sys.modules.get("pyiceberg.utils.concurrent")
    return module is not None and thread in getattr(module.ExecutorFactory._instance, "_threads", ())


def _files(command: list[str]) -> list[str]:
    """What a process works on. One that works on the same as one that lasts is that one, started again."""
    return [argument for argument in command[1:] if "/" in argument]


def _tell_threads_who_started_them() -> Callable[[], None]:
    """A thread that something lasting starts may last, too."""
    start = threading.Thread.start

    def start_and_tell(thread: threading.Thread) -> None:
        if getattr(threading.current_thread(), _STAYS, False):
            setattr(thread, _STAYS, True)
        start(thread)

    threading.Thread.start = start_and_tell  # type: ignore[method-assign, assignment]

    def undo() -> None:
        threading.Thread.start = start  # type: ignore[method-assign]

    return undo
