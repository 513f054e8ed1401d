"""The data set of a cluster: the data directories of its brokers, and a snapshot of etcd that is restored first."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.testing.cluster import ClusterProcesses
from headrace.testing.etcd import EtcdProcess, free_port
from headrace.testing.process import BrokerProcess
from tests.upgrade.release import OPENING

SNAPSHOT = "etcd.snapshot"
SETTINGS: dict[str, object] = {**OPENING, "broker.session.timeout.ms": 2000, "controlled.shutdown.timeout.ms": 1000}


@contextmanager
def opened_cluster(folder: Path, env: dict[str, str] | None = None) -> Iterator[ClusterProcesses]:
    """Three brokers on an unpacked data set, all of them in sync."""
    with restored_etcd(folder) as etcd, _Cluster(folder, etcd, env or {}) as cluster:
        cluster.await_in_sync()
        yield cluster


class _Cluster(ClusterProcesses):
    def __init__(self, folder: Path, etcd: EtcdProcess, env: dict[str, str]) -> None:
        super().__init__(folder, brokers=3, settings=SETTINGS, etcd=etcd)
        self._env = env

    def _make(self, broker_id: int, rack: str) -> BrokerProcess:
        made = super()._make(broker_id, rack)
        made.env.update(self._env)
        return made


def restored_etcd(folder: Path) -> EtcdProcess:
    """An etcd that is not running yet, with what is in the snapshot."""
    etcd = EtcdProcess(folder / "etcd")
    etcd.port, etcd._peer_port = free_port(), free_port()
    command = [
        *("etcdctl", "snapshot", "restore", str(folder / SNAPSHOT)),
        f"--data-dir={etcd.data_dir / 'etcd'}",
        f"--name={etcd.name}",
        f"--initial-cluster={etcd.as_member}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{etcd._peer_port}",
    ]
    env = {**os.environ, "ETCDCTL_API": "3"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=env)
    assert done.returncode == 0, done.stderr
    return etcd
