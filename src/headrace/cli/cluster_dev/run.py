"""The work of `headrace cluster dev`: an etcd and brokers on this machine, as children of one command."""

import asyncio
import contextlib
import fcntl
import os
import re
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

from headrace.cli.children import Child, how_it_ended, keep_running
from headrace.cli.cluster_dev.commands import DEFAULT_FOLDER, MOST_BROKERS
from headrace.cli.cluster_dev.control import Listener
from headrace.cli.cluster_dev.output import DevOutput, say_now
from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.output import count
from headrace.model.extras import CLUSTER, require

_HOST = "127.0.0.1"
_ETCD_READY_S = 60.0
_READY_S = 120.0
_BROKER_STOP_S = 45.0
_ETCD_STOP_S = 15.0
_ORPHANED = signal.SIGKILL
"""No process is left to stop them in order, and brokers without their etcd would take long to stop."""
_READY = re.compile(r"ready on (\S+:\d+)")
_HTTP = re.compile(r"queues on http://(\S+:\d+)")
_ETCD_MISSING = (
    "there is no etcd on this machine's PATH, and a cluster needs one. On Debian or Ubuntu: "
    "apt-get install etcd-server; elsewhere unpack a release of etcd and put `etcd` on the PATH. "
    "A single broker needs none: headrace serve"
)


@dataclass(frozen=True, slots=True)
class DevCluster:
    """The options of the command."""

    folder: Path
    brokers: int
    base_port: int
    settings: Mapping[str, str]
    restart: bool
    verbose: bool


def run_dev_cluster(wanted: DevCluster) -> None:
    require(CLUSTER)
    etcd = shutil.which("etcd")
    if etcd is None:
        raise CommandFailed(_ETCD_MISSING)
    with _locked(wanted.folder):
        _warn_of_others(wanted)
        asyncio.run(_Dev(wanted, etcd).run())


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The folder for ourselves: two clusters on the same data would wait for each other's locks without a word."""
    try:
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CommandFailed(
                    f"another `headrace cluster dev` runs on {folder}: give another --data-dir"
                ) from None
            yield
    except OSError as error:
        raise CommandFailed(f"{folder} cannot be used: {error.strerror}") from None


def _warn_of_others(wanted: DevCluster) -> None:
    known = {int(path.name[7:]) for path in wanted.folder.glob("broker-*") if path.name[7:].isdigit()}
    if missing := sorted(known - set(range(1, wanted.brokers + 1))):
        names = ", ".join(map(str, missing))
        more = max(missing)
        say_now(
            f"{wanted.folder} also has data of broker {names}, which is not started: --brokers {more} starts it too"
        )


class _Dev:
    def __init__(self, wanted: DevCluster, etcd: str) -> None:
        self._wanted = wanted
        self._etcd_program = etcd
        names = [f"broker {number}" for number in range(1, wanted.brokers + 1)]
        self._voice = DevOutput(["etcd", *names], verbose=wanted.verbose)
        self._addresses: dict[str, str] = {}
        self._http: list[str] = []
        self._is_announced = False
        self._changed = asyncio.Event()
        self._etcd_port = 0
        self._etcd: Child | None = None
        self._brokers: list[Child] = []
        self._watching: dict[str, asyncio.Task[int]] = {}
        self._ready_again: dict[str, asyncio.Event] = {}

    async def run(self) -> None:
        stopping = asyncio.Event()
        signals = 0

        def interrupted() -> None:
            nonlocal signals
            signals += 1
            stopping.set()
            if signals > 1:
                self._kill_everything()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, interrupted)
        working = loop.create_task(self._work())
        stop = loop.create_task(stopping.wait())
        try:
            async with Listener(self._wanted.folder, {"start": self._start_again, "kill": self._kill}):
                await asyncio.wait((working, stop), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            for task in (working, stop):
                task.cancel()
            await asyncio.wait((working, stop))
            await self._stop_everything()

    async def _work(self) -> None:
        """Start all of it, and return when it makes no sense any more."""
        await self._start_etcd()
        for number in range(1, self._wanted.brokers + 1):
            broker = self._broker(number)
            self._brokers.append(broker)
            await broker.start()
            self._watch(broker)
        started_s = time.monotonic()
        while True:
            if not self._is_announced and len(self._addresses) == len(self._brokers):
                self._announce(time.monotonic() - started_s)
            if all(broker.name in self._watching and self._watching[broker.name].done() for broker in self._brokers):
                raise CommandFailed(f"no broker is left; their logs are in {self._wanted.folder / 'logs'}")
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), None if self._is_announced else _READY_S)
            except TimeoutError:
                slow = [broker.name for broker in self._brokers if broker.name not in self._addresses]
                raise CommandFailed(
                    f"{', '.join(slow)} did not get ready in {_READY_S:.0f} s; see {self._wanted.folder / 'logs'}"
                ) from None

    async def _start_etcd(self) -> None:
        client, peer = _free_ports(2)
        self._etcd_port = client
        client_url, peer_url = f"http://{_HOST}:{client}", f"http://{_HOST}:{peer}"
        self._etcd = Child(
            "etcd",
            [
                self._etcd_program,
                "--name=dev",
                f"--data-dir={self._wanted.folder / 'etcd'}",
                f"--listen-client-urls={client_url}",
                f"--advertise-client-urls={client_url}",
                f"--listen-peer-urls={peer_url}",
                f"--initial-advertise-peer-urls={peer_url}",
                f"--initial-cluster=dev={peer_url}",
                "--auto-compaction-mode=revision",
                "--auto-compaction-retention=10000",
                "--logger=zap",
                "--log-level=warn",
            ],
            log_file=self._wanted.folder / "logs" / "etcd.log",
            on_line=self._voice.heard,
            orphaned=_ORPHANED,
        )
        await self._etcd.start()
        await self._await_etcd(self._etcd)
        self._watch(self._etcd)

    async def _await_etcd(self, etcd: Child) -> None:
        deadline_s = time.monotonic() + _ETCD_READY_S
        while not await asyncio.to_thread(_answers, self._etcd_port):
            if not etcd.is_running:
                raise CommandFailed(f"etcd {how_it_ended(await etcd.wait())}: {etcd.last_line}")
            if time.monotonic() > deadline_s:
                raise CommandFailed(f"etcd did not get ready; see {self._wanted.folder / 'logs' / 'etcd.log'}")
            await asyncio.sleep(0.05)
        self._voice.tell("etcd", f"ready on {_HOST}:{self._etcd_port}")

    def _broker(self, number: int) -> Child:
        folder = self._wanted.folder
        port = self._wanted.base_port + number - 1 if self._wanted.base_port else 0
        command = [sys.executable, "-m", "headrace", "serve", "--etcd", f"{_HOST}:{self._etcd_port}"]
        command += ["--broker-id", str(number), "--data-dir", str(folder / f"broker-{number}")]
        command += ["--kafka-listen", f"{_HOST}:{port}"]
        if not port and "http.listen" not in self._wanted.settings:
            command += ["--http-listen", f"{_HOST}:0"]
        for name, value in self._wanted.settings.items():
            command += ["--set", f"{name}={value}"]
        return Child(
            f"broker {number}",
            command,
            log_file=folder / "logs" / f"broker-{number}.log",
            on_line=self._voice.heard,
            became_ready=self._became_ready,
            orphaned=_ORPHANED,
        )

    def _became_ready(self, broker: Child, line: str) -> None:
        match = _READY.search(line)
        if match is None:
            return
        if broker.name not in self._addresses:
            self._addresses[broker.name] = match[1]
            http = _HTTP.search(line)
            self._http.extend(f"http://{each[1]}" for each in (http,) if each is not None)
            # A restart uses the port that was free at the first start.
            for flag, found in (("--kafka-listen", match), ("--http-listen", http)):
                if flag in broker.command and found is not None:
                    broker.command[broker.command.index(flag) + 1] = found[1]
        self._voice.tell(broker.name, f"ready on {match[1]}")
        if (waited_for := self._ready_again.get(broker.name)) is not None:
            waited_for.set()
        self._changed.set()

    def _announce(self, took_s: float) -> None:
        self._is_announced = True
        in_order = [self._addresses[broker.name] for broker in self._brokers]
        bootstrap = ",".join(in_order)
        first = "" if self._wanted.base_port == 9092 else f" --bootstrap {in_order[0]}"
        say_now(
            f"\nThe cluster is ready: {count(self._wanted.brokers, 'broker')} after {took_s:.1f} s, "
            f"data and logs in {self._wanted.folder}\n"
            f"  bootstrap servers  {bootstrap}\n"
            f"  queues (SQS API)   {' '.join(sorted(self._http)) or 'not served'}\n"
            f"  look at it         headrace cluster status{first}\n"
            f"  try a fault        kill -9 {self._brokers[-1].pid}    (broker {len(self._brokers)})\n"
            f"  bring it back      {self._command('start', str(len(self._brokers)))}\n"
            "  stop all of it     Ctrl-C\n"
        )

    def _command(self, verb: str, who: str) -> str:
        """The command that does this to a child, as it is typed in this folder."""
        folder = self._wanted.folder
        where = "" if folder == DEFAULT_FOLDER.absolute() else f" --data-dir {shlex.quote(str(folder))}"
        return f"headrace cluster dev {verb} {who}{where}"

    def _watch(self, child: Child) -> None:
        task = asyncio.get_running_loop().create_task(keep_running(child, self._died, may_restart=self._may_restart))
        task.add_done_callback(lambda _: self._changed.set())
        self._watching[child.name] = task

    def _may_restart(self, child: Child, code: int) -> bool:
        """One that never was ready, or that cannot run as asked, would only end again."""
        return self._wanted.restart and code != 2 and (child is self._etcd or child.has_been_ready)

    def _died(self, child: Child, code: int, again_in_s: float) -> None:
        what = f"{how_it_ended(code)} (process {child.pid})"
        if again_in_s >= 0:
            self._voice.tell(child.name, f"{what}; it is started again in {again_in_s:.0f} s", "red")
        elif child is self._etcd:
            hint = f"{self._command('start', child.name)} brings it back"
            self._voice.tell(
                child.name, f"{what}; brokers serve what they lead, and nothing can be changed: {hint}", "red"
            )
        else:
            left = sum(broker.is_running for broker in self._brokers)
            hint = f"; {self._command('start', child.name.split()[-1])} brings it back" if child.has_been_ready else ""
            self._voice.tell(child.name, f"{what}; {count(left, 'broker')} left{hint}", "red")

    # -- what `headrace cluster dev start` and `kill` ask for

    async def _start_again(self, who: str) -> str:
        """Start a child that has ended, or one more broker; what to say when it is ready."""
        child = self._child(who, may_be_new=True)
        if child.is_running:
            raise CommandFailed(f"{child.name} is running already (process {child.pid})")
        if child.name in self._watching and not self._watching[child.name].done():
            raise CommandFailed(f"{child.name} is about to be started again by itself, since --restart was given")
        ready = self._ready_again[child.name] = asyncio.Event()
        await child.start()
        self._watch(child)
        if child is self._etcd:
            await self._await_etcd(child)
            return f"etcd is ready on {_HOST}:{self._etcd_port} (process {child.pid})"
        waiting = asyncio.ensure_future(ready.wait())
        ended = self._watching[child.name]
        await asyncio.wait((waiting, ended), timeout=_READY_S, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not ready.is_set():
            what = how_it_ended(ended.result()) if ended.done() else f"is not ready after {_READY_S:.0f} s"
            raise CommandFailed(f"{child.name} {what}: {child.last_line.removeprefix('headrace: ')}")
        return f"{child.name} is ready on {self._addresses[child.name]} (process {child.pid})"

    async def _kill(self, who: str) -> str:
        child = self._child(who)
        if not child.is_running:
            raise CommandFailed(f"{child.name} is not running; {self._command('start', who)} starts it")
        pid = child.pid
        os.kill(pid, signal.SIGKILL)
        again = "it is started again" if self._wanted.restart else f"{self._command('start', who)} brings it back"
        return f"{child.name} (process {pid}) was killed; {again}"

    def _child(self, who: str, *, may_be_new: bool = False) -> Child:
        if not self._is_announced:
            raise CommandFailed("the cluster is still starting: wait until it says that it is ready")
        if who == "etcd" and self._etcd is not None:
            return self._etcd
        for broker in self._brokers:
            if broker.name == f"broker {who}":
                return broker
        if not may_be_new or not who.isdecimal() or not 1 <= int(who) <= MOST_BROKERS:
            known = ", ".join(broker.name.split()[-1] for broker in self._brokers)
            raise CommandFailed(f"there is no {who} in this cluster, only the brokers {known}, and etcd")
        self._brokers.append(self._broker(int(who)))
        return self._brokers[-1]

    async def _stop_everything(self) -> None:
        """Stop brokers one after the other, so that each can transfer its leadership, and etcd last."""
        for task in self._watching.values():
            task.cancel()
        await asyncio.gather(*self._watching.values(), return_exceptions=True)
        running = [broker for broker in self._brokers if broker.is_running]
        if running:
            say_now(f"\nStopping {count(len(running), 'broker')} and etcd; Ctrl-C again ends them at once")
        for broker in reversed(running):
            if await broker.stop(_BROKER_STOP_S):
                self._voice.tell(broker.name, "stopped")
            else:
                self._voice.tell(broker.name, f"did not stop in {_BROKER_STOP_S:.0f} s and was killed", "red")
        if self._etcd is not None and self._etcd.is_running:
            await self._etcd.stop(_ETCD_STOP_S)
            self._voice.tell("etcd", "stopped")

    def _kill_everything(self) -> None:
        for child in (*self._brokers, *([self._etcd] if self._etcd else [])):
            if child.is_running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.create_server((_HOST, 0))) for _ in range(number)]
        return [int(probe.getsockname()[1]) for probe in probes]


def _answers(port: int) -> bool:
    try:
        with build_opener(ProxyHandler({})).open(f"http://{_HOST}:{port}/health", timeout=2) as answer:
            return b'"true"' in answer.read()
    except (OSError, URLError):
        return False


def check_ports(base_port: int, brokers: int) -> None:
    """That all ports are free, before anything is started: one sentence instead of one for each broker."""
    for port in range(base_port, base_port + brokers) if base_port else ():
        if port > 65_535:
            raise BadArgument(f"--base-port {base_port} leaves no room for {count(brokers, 'broker')}")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError:
                raise CommandFailed(
                    f"port {port} is in use: the brokers take {base_port} to {base_port + brokers - 1}, "
                    "choose others with --base-port"
                ) from None
