"""Two clusters of three brokers and etcd, each process on a network node of its own, and what travels between them.

The test's clients reach all brokers at all times; the cuts are between the clusters. Needs root, iproute2 and etcd.
"""

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from headrace.testing.cluster import ClusterProcesses
from headrace.testing.etcd import EtcdProcess, free_port, is_installed
from headrace.testing.process import BrokerProcess
from tests.faults.networks import CLIENTS, Network, NotPossible
from tests.faults.testbed import SQS_KEY
from tests.waiting import until

BROKERS = (1, 2, 3)
SOURCE, TARGET = "eu", "us"
_ANSWER_S = 60.0
_IN_SYNC_WITHIN_S = 180.0
_open = build_opener(ProxyHandler({})).open


def node(side: str, broker_id: int) -> str:
    return f"{side}-{broker_id}"


class Region(ClusterProcesses):
    """The brokers of one side, in the network."""

    def __init__(self, network: Network, side: str, folder: Path, settings: Mapping[str, object]) -> None:
        self._network, self.side = network, side
        self._calls = 0
        name = f"{side}-etcd"
        etcd = EtcdProcess(folder / name, host=network.address(name), prefix=network.prefix(name))
        super().__init__(folder / side, settings=settings, etcd=etcd)
        self._owns_etcd = True

    def _make(self, broker_id: int, rack: str) -> BrokerProcess:
        name = node(self.side, broker_id)
        host = self._network.address(name)
        own = {"http.listen": f"{host}:{free_port()}", "sqs.access.keys": SQS_KEY, "insecure": True}
        made = self.brokers[broker_id] = BrokerProcess(
            self.folder / f"broker-{broker_id}",
            host=host,
            port=free_port(),
            settings={**own, **self._settings},
            args=["--etcd", self.etcd.endpoint, "--broker-id", str(broker_id)],
            prefix=self._network.prefix(name),
            log_file=self.folder / f"broker-{broker_id}.log",
        )
        return made

    def call(self, method: str, path: str, value: object = None, *, within_s: float = _ANSWER_S) -> Any:
        """What a broker of this side answers, each in turn; again while none does, or it cannot for the moment."""
        body = None if value is None else json.dumps(value).encode()
        ends_at = time.monotonic() + within_s
        while True:
            broker_id = self.running[self._calls % len(self.running)]
            self._calls += 1
            url = f"{self.brokers[broker_id].http_url}/api/v1{path}"
            request = Request(url, body, {"Content-Type": "application/json"}, method=method)
            try:
                with _open(request, timeout=10) as answer:
                    text = answer.read()
                return json.loads(text) if text else None
            except HTTPError as error:
                reason = f"{error.code} {error.read().decode(errors='replace')}"
                if error.code < 500:
                    raise RuntimeError(f"{method} {path}: {reason}") from None
            except (URLError, OSError) as error:
                reason = str(error)
            assert time.monotonic() < ends_at, f"{method} {path}: not within {within_s:g} s: {reason}"
            time.sleep(0.1)

    def await_link(self, link: str) -> None:
        """Wait until every broker that runs knows a link: one that was asked to create it knows it first."""

        def names(broker_id: int) -> list[str]:
            with _open(f"{self.brokers[broker_id].http_url}/api/v1/links", timeout=10) as answer:
                return [row["name"] for row in json.loads(answer.read())]

        until(lambda: all(link in names(each) for each in self.running), f"all brokers know the link {link}")

    def mirror(self, link: str, topic: str) -> dict[str, Any] | None:
        """What a link says of one of its topics; None while it is not there."""
        rows = self.call("GET", f"/links/{link}")["topics"]
        return next((dict(row) for row in rows if row["topic"] == topic), None)

    def metric(self, name: str, link: str) -> float:
        """The sum of a metric of a link over all brokers."""
        total = 0.0
        for broker in self.brokers.values():
            with _open(f"{broker.http_url}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
            total += sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f'{name}{{link="{link}"}}'))
        return total


class LinkedClusters:
    """Within `with`, the calling thread and all that it starts are where the clients are."""

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        if not is_installed():
            pytest.skip("etcd is not installed")
        self._folder, self._settings = folder, settings
        self._undo = ExitStack()
        self.network: Network
        self.source: Region
        self.target: Region

    def __enter__(self) -> "LinkedClusters":
        sides = (SOURCE, TARGET)
        names = [name for side in sides for name in (f"{side}-etcd", *(node(side, each) for each in BROKERS))]
        try:
            self.network = Network(*names)
        except NotPossible as reason:
            pytest.skip(str(reason))
        with ExitStack() as stack:
            stack.callback(self.network.close)
            stack.enter_context(self.network.inside())
            self.source, self.target = (Region(self.network, side, self._folder, self._settings) for side in sides)
            stack.enter_context(self.source)
            stack.enter_context(self.target)
            self._undo = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.__exit__(kind, error, trace)

    def cut(self, *, both_ways: bool = True, targets: tuple[int, ...] = BROKERS) -> None:
        """Nothing that the source sends reaches these brokers of the target, nor the other way round."""
        for broker_id in BROKERS:
            for target_id in targets:
                self.network.cut(node(SOURCE, broker_id), node(TARGET, target_id), both_ways=both_ways)

    def isolate(self, side: str, broker_id: int) -> None:
        """Cut a broker off from all processes but the clients."""
        self.network.isolate(node(side, broker_id), but=(CLIENTS,))

    def recover(self) -> None:
        """Heal the network, start what was killed or paused, and wait until all replicas are in sync."""
        self.network.heal()
        for side in (self.source, self.target):
            for broker_id, each in side.brokers.items():
                if each.is_paused:
                    side.resume(broker_id)
        stopped = [each for side in (self.source, self.target) for each in side.brokers.values() if not each.is_running]
        for broker in stopped:
            broker.launch()
        for broker in stopped:
            broker.await_ready(_IN_SYNC_WITHIN_S)
        for side in (self.source, self.target):
            side.await_in_sync(_IN_SYNC_WITHIN_S)

    def partitions(self, link: str, topic: str) -> list[dict[str, Any]]:
        """The figures of a mirror topic's partitions; none while it is not there."""
        row = self.target.mirror(link, topic)
        return [] if row is None else list(row["partitions"])

    def await_mirror(self, link: str, topic: str, count: int) -> None:
        def is_copied() -> bool:
            found = self.partitions(link, topic)
            return len(found) == count and all(each["source_end"] is not None for each in found)

        until(is_copied, f"the link {link} copies all partitions of {topic}")
