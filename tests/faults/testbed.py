"""A cluster that can be harmed: each broker, and etcd, on a network node and a disk of its own where possible.

Without root, or on a machine that lacks something, the rest still works; `lacks` says what cannot be done and why.
"""

import shutil
import struct
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import pytest

from headrace.security.tls.dev_certificates import make_dev_certificates
from headrace.testing.cluster import ClusterProcesses
from headrace.testing.etcd import EtcdProcess, free_port, is_installed
from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster, Timeouts, WireError
from tests.faults.mounts import LoopDisk
from tests.faults.networks import Network, NotPossible

BROKERS = (1, 2, 3)
SETTINGS: dict[str, object] = {
    "broker.session.timeout.ms": 6000,
    "replica.lag.time.max.ms": 4000,
    "group.initial.rebalance.delay.ms": 500,
    "controlled.shutdown.timeout.ms": 10_000,
    "num.partitions": 3,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}
SQS_KEY = "any:any"
"""Clients of queues need one, since brokers do not listen on loopback."""
NETWORK, DISKS, STRACE, CLOCK = "network", "disks", "strace", "clock"
_CLOCK_SOURCE = Path(__file__).parent / "clock.c"
_IMPATIENT = Timeouts(connect_s=2.0, request_s=5.0, patience_s=0.0)
_DISK_MIB = 192


class _Cluster(ClusterProcesses):
    """Brokers that run where the testbed says."""

    def __init__(self, bed: "Testbed", settings: Mapping[str, object], etcd: EtcdProcess) -> None:
        certificates = bed.folder / "certificates" if bed.is_secured else None
        super().__init__(
            bed.folder / "cluster", brokers=len(BROKERS), settings=settings, etcd=etcd, certificates=certificates
        )
        self._bed = bed
        if certificates is not None:
            make_dev_certificates(certificates, hosts=bed.hosts)

    def _make(self, broker_id: int, rack: str) -> BrokerProcess:
        bed, name = self._bed, node(broker_id)
        host, port = bed.host(broker_id), free_port()
        own = {"http.listen": f"{host}:{free_port()}", "sqs.access.keys": SQS_KEY, **self._secured(port, host)}
        made = self.brokers[broker_id] = BrokerProcess(
            bed.data_dir(broker_id),
            host=host,
            port=port,
            settings={**own, **self._settings},
            args=["--etcd", self.etcd.endpoint, "--broker-id", str(broker_id), "--rack", f"rack-{broker_id}"],
            env={**bed.env, **bed.clock_env(broker_id)},
            prefix=[] if bed.network is None else bed.network.prefix(name),
            log_file=self.folder / f"broker-{broker_id}.log",
        )
        return made


def node(broker_id: int) -> str:
    return f"broker-{broker_id}"


class Testbed:
    """Three brokers and etcd. `with` it the calling thread is where the clients are; in the end all is undone."""

    __test__ = False

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, object] | None = None,
        with_disks: bool = True,
        with_network: bool = True,
        with_clock: bool = False,
        is_secured: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """With `is_secured` brokers talk to each other over TLS and log in with SCRAM.

        `env` is for the brokers' processes when they are first started.
        """
        if not is_installed():
            pytest.skip("etcd is not installed")
        self.folder = folder
        self.is_secured = is_secured
        self.lacks: dict[str, str] = {}
        """What cannot be done here, and why."""
        self.network: Network | None = None
        self.disks: dict[str, LoopDisk] = {}
        self._undo = ExitStack()
        # In a network of their own, brokers do not listen on loopback. Version 0.1 does not have this setting.
        beyond_loopback = {"insecure": True} if with_network else {}
        self.settings: dict[str, object] = {**SETTINGS, **beyond_loopback, **(settings or {})}
        self.env = dict(env or {})
        self._wants = {NETWORK: with_network, DISKS: with_disks, CLOCK: with_clock}
        self.cluster: ClusterProcesses

    def __enter__(self) -> "Testbed":
        with ExitStack() as stack:
            self._prepare(stack)
            network = self.network
            if network is not None:
                stack.callback(network.close)
                stack.enter_context(network.inside())
            host = "127.0.0.1" if network is None else network.address("etcd")
            prefix = [] if network is None else network.prefix("etcd")
            etcd = EtcdProcess(self._home("etcd"), host=host, prefix=prefix)
            stack.callback(etcd.close)
            etcd.start()
            self.cluster = _Cluster(self, self.settings, etcd)
            stack.enter_context(self.cluster)
            self._undo = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.__exit__(kind, error, trace)

    def _prepare(self, stack: ExitStack) -> None:
        if shutil.which("strace") is None:
            self.lacks[STRACE] = "strace is not installed"
        if not self._wants[CLOCK]:
            self.lacks[CLOCK] = "the clocks are real"
        elif (compiler := shutil.which("cc")) is None:
            self.lacks[CLOCK] = "there is no C compiler"
        else:
            command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(self._clock_library), str(_CLOCK_SOURCE), "-ldl"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                self.lacks[CLOCK] = done.stderr
        if not self._wants[NETWORK]:
            self.lacks[NETWORK] = "all are on one network"
        else:
            try:
                self.network = Network("etcd", *map(node, BROKERS))
            except NotPossible as reason:
                self.lacks[NETWORK] = str(reason)
        if not self._wants[DISKS]:
            self.lacks[DISKS] = "all are on one disk"
            return
        for name in ("etcd", *map(node, BROKERS)):
            try:
                disk = LoopDisk(self.folder / f"disk-{name}", _DISK_MIB)
            except pytest.skip.Exception as reason:
                self.lacks[DISKS] = str(reason)
                self.disks.clear()
                return
            self.disks[name] = disk
            stack.callback(disk.close)

    def _home(self, name: str) -> Path:
        return self.disks[name].folder if name in self.disks else self.folder / name

    def host(self, broker_id: int) -> str:
        return "127.0.0.1" if self.network is None else self.network.address(node(broker_id))

    @property
    def hosts(self) -> list[str]:
        return [self.host(broker_id) for broker_id in BROKERS]

    def data_dir(self, broker_id: int) -> Path:
        return self._home(node(broker_id)) / "data"

    def clock_env(self, broker_id: int) -> dict[str, str]:
        if CLOCK in self.lacks:
            return {}
        self.set_clock(broker_id, 0)
        return {"LD_PRELOAD": str(self._clock_library), "TEST_CLOCK_FILE": str(self._clock_file(broker_id))}

    def set_clock(self, broker_id: int, ahead_s: int) -> None:
        """That broker's clock on the wall is so far ahead of ours, at once."""
        with self._clock_file(broker_id).open("r+b" if self._clock_file(broker_id).exists() else "wb") as file:
            file.write(struct.pack("q", ahead_s))

    def _clock_file(self, broker_id: int) -> Path:
        return self.folder / f"clock-{broker_id}"

    @property
    def _clock_library(self) -> Path:
        return self.folder / "clock.so"

    # -- what is where

    @property
    def session_s(self) -> float:
        """For how long a broker that is not heard of is taken for alive."""
        return int(str(self.settings["broker.session.timeout.ms"])) / 1000

    def leader(self, topic: str, partition: int, *, not_by: int = 0) -> int:
        """The leader as the cluster says, -1 for none or when nobody answers.

        `not_by` is a broker that is not asked: one that is cut off does not know better.
        """
        asked = [broker.bootstrap for broker_id, broker in self.cluster.brokers.items() if broker_id != not_by]
        try:
            with Cluster(",".join(asked), timeouts=_IMPATIENT) as one:
                return next(part.leader for part in one.metadata()[topic].partitions if part.partition == partition)
        except (WireError, LookupError, StopIteration):
            return -1

    def recover(self, timeout_s: float = 180.0) -> float:
        """Undo what was done to network, clocks and processes and wait until all replicas are in sync: how long."""
        began = time.monotonic()
        if self.network is not None:
            self.network.heal()
        if not self.cluster.etcd.is_running:
            self.cluster.etcd.start()
        for broker_id in BROKERS:
            self.cluster.resume(broker_id)
        self.start_stopped(timeout_s)
        self.cluster.await_in_sync(timeout_s)
        return time.monotonic() - began

    def start_stopped(self, timeout_s: float = 180.0) -> None:
        """Start the brokers that do not run, all at once, and wait until they say that they are ready."""
        stopped = [broker for broker in self.cluster.brokers.values() if not broker.is_running]
        for broker in stopped:
            broker.launch()
        for broker in stopped:
            broker.await_ready(timeout_s)
