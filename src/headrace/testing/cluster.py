"""A real cluster for tests: etcd and `headrace serve` processes on loopback, each of which can be stopped, killed and
paused. Their logs are saved, and printed when a test fails inside the `with` block.

    with ClusterProcesses(tmp_path, brokers=3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        cluster.kill(2)
        cluster.start_broker(2)
        cluster.await_in_sync()
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from headrace.testing.etcd import EtcdProcess, free_port
from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster, Timeouts, WireError

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0
_LOOK_EVERY_S = 0.05
_TAIL_LINES = 60
_IMPATIENT = Timeouts(connect_s=2.0, request_s=5.0, patience_s=0.0)


class ClusterProcesses:
    """etcd and `brokers` brokers with the ids `first_id`…, under `folder`: data in `broker-1`, its log in
    `broker-1.log`, and so on.

    With `certificates`, a folder that `headrace cert dev` has made, brokers talk to each other over TLS and log in with
    SCRAM; clients connect as without it.

    `settings` apply to every broker, `settings_of` to single ones by id; `racks` are assigned round robin. Ports and
    data survive restarts. A given `etcd` is used and left running; otherwise one is started and stopped. Every wait has
    a timeout, and `close` leaves no process behind.
    """

    def __init__(
        self,
        folder: Path,
        *,
        brokers: int = 3,
        first_id: int = 1,
        racks: Sequence[str] = (),
        settings: Mapping[str, object] | None = None,
        settings_of: Mapping[int, Mapping[str, object]] | None = None,
        etcd: EtcdProcess | None = None,
        certificates: Path | None = None,
    ) -> None:
        self.certificates = certificates
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._owns_etcd = etcd is None
        self.etcd = etcd or EtcdProcess(folder / "etcd")
        self._settings = dict(settings or {})
        self._settings_of = {broker_id: dict(its) for broker_id, its in (settings_of or {}).items()}
        self.brokers: dict[int, BrokerProcess] = {}
        """By id, running or not."""
        self._planned = [(first_id + number, racks[number % len(racks)] if racks else "") for number in range(brokers)]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, running or not, for `bootstrap.servers`."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    @property
    def http_url(self) -> str:
        """The URL of a running broker's queues; every broker has one, `brokers[1].http_url`, and any of them works."""
        return self.brokers[self.running[0]].http_url

    @property
    def running(self) -> list[int]:
        """The ids of the brokers that are running and not paused."""
        return [id_ for id_, broker in self.brokers.items() if broker.is_running and not broker.is_paused]

    def start(self, timeout_s: float = START_TIMEOUT_S) -> "ClusterProcesses":
        """Start everything and wait until every broker is admitted and known to every other."""
        deadline_s = time.monotonic() + timeout_s
        if self._owns_etcd and not self.etcd.is_running:
            self.etcd.start()
        try:
            for broker_id, rack in self._planned:
                self._make(broker_id, rack).launch()
            for broker in self.brokers.values():
                broker.await_ready(max(1.0, deadline_s - time.monotonic()))
            self.await_ready(max(1.0, deadline_s - time.monotonic()))
        except BaseException:
            self.show_logs()
            self.close()
            raise
        return self

    def add_broker(self, broker_id: int, *, rack: str = "", timeout_s: float = START_TIMEOUT_S) -> BrokerProcess:
        """Add a broker; returns when the others have it in their metadata."""
        broker = self._make(broker_id, rack).start(timeout_s)
        self.await_ready(timeout_s)
        return broker

    def start_broker(self, broker_id: int, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start a stopped or killed broker; returns when it is admitted and in the others' metadata."""
        self.brokers[broker_id].start(timeout_s)
        self.await_ready(timeout_s)

    def stop(self, broker_id: int, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM, which transfers leadership first; returns the exit code."""
        return self.brokers[broker_id].terminate(timeout_s)

    def kill(self, broker_id: int) -> None:
        """kill -9; returns when the process is gone. The others detect it when its lease expires."""
        self.brokers[broker_id].kill()

    def pause(self, broker_id: int) -> None:
        """SIGSTOP."""
        self.brokers[broker_id].pause()

    def resume(self, broker_id: int) -> None:
        """SIGCONT."""
        self.brokers[broker_id].resume()

    def restart(self, broker_id: int, *, kill: bool = False, timeout_s: float = START_TIMEOUT_S) -> None:
        """Stop one, with SIGTERM or with kill -9, and start it again."""
        if kill:
            self.kill(broker_id)
        elif self.brokers[broker_id].is_running:
            self.stop(broker_id)
        self.start_broker(broker_id, timeout_s)

    # -- waiting

    def await_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the metadata of every running broker lists exactly the running ones, and a controller."""
        expected = set(self.running)

        def look() -> str:
            for broker_id in expected:
                with Cluster(self.brokers[broker_id].bootstrap, timeouts=_IMPATIENT) as one:
                    info = one.describe()
                there = {each.broker_id for each in info.brokers.values() if not each.is_fenced}
                if not expected <= there:
                    return f"broker {broker_id} sees the brokers {sorted(there)}, not {sorted(expected)}"
                if info.controller not in there:
                    return f"broker {broker_id} sees no controller"
            return ""

        self.wait_until(look, "the brokers know each other", timeout_s)

    def await_in_sync(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until every partition has a leader and all of its replicas in sync."""

        def look() -> str:
            with Cluster(self._any_running(), timeouts=_IMPATIENT) as one:
                for topic in one.metadata().values():
                    for part in topic.partitions:
                        if part.leader < 0 or set(part.isr) != set(part.replicas):
                            return f"{topic.name}-{part.partition} is led by {part.leader}, in sync are {part.isr}"
            return ""

        self.wait_until(look, "all replicas are in sync", timeout_s)

    def wait_until(self, look: Callable[[], str], what: str, timeout_s: float) -> None:
        """Wait until `look` returns an empty string; otherwise it returns the reason to wait."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                reason = look()
            except WireError as error:
                reason = str(error)
            if not reason:
                return
            for broker_id, broker in self.brokers.items():
                if broker.has_died:
                    raise RuntimeError(f"broker {broker_id} has exited:\n{_tail(broker)}")
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"timed out after {timeout_s:.0f} s waiting until {what}: {reason}")
            time.sleep(_LOOK_EVERY_S)

    # -- logs

    def logs(self) -> str:
        """The end of each broker's log."""
        return "\n".join(f"---- broker {id_}\n{_tail(broker)}" for id_, broker in self.brokers.items())

    def show_logs(self) -> None:
        sys.stderr.write(self.logs())

    def close(self) -> None:
        """Kill everything, brokers first, and leave no process running."""
        for broker in self.brokers.values():
            broker.kill()
            broker.close()
        if self._owns_etcd:
            self.etcd.close()

    def _make(self, broker_id: int, rack: str) -> BrokerProcess:
        if broker_id in self.brokers:
            raise ValueError(f"there is a broker {broker_id} already")
        rack_flag = ["--rack", rack] if rack else []
        port = free_port()
        made = self.brokers[broker_id] = BrokerProcess(
            self.folder / f"broker-{broker_id}",
            port=port,
            settings={**self._secured(port), **self._settings, **self._settings_of.get(broker_id, {})},
            args=["--etcd", self.etcd.endpoint, "--broker-id", str(broker_id), *rack_flag],
            log_file=self.folder / f"broker-{broker_id}.log",
        )
        return made

    def _secured(self, port: int, host: str = "127.0.0.1") -> dict[str, object]:
        """The settings that secure the connections between brokers."""
        if self.certificates is None:
            return {}
        return {
            "listeners": f"plain://{host}:{port},sasl_tls://{host}:{free_port()}?name=brokers",
            "inter.broker.listener": "brokers",
            "inter.broker.user": "brokers",
            "inter.broker.password": "a password among brokers",
            "tls.cert.file": self.certificates / "broker.pem",
            "tls.key.file": self.certificates / "broker-key.pem",
            "tls.ca.file": self.certificates / "ca.pem",
        }

    def _any_running(self) -> str:
        return ",".join(self.brokers[broker_id].bootstrap for broker_id in self.running)

    def __enter__(self) -> "ClusterProcesses":
        return self if self.brokers else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.show_logs()
        self.close()


def _tail(broker: BrokerProcess) -> str:
    return "\n".join(broker.stderr.splitlines()[-_TAIL_LINES:])
