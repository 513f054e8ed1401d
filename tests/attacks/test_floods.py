"""Floods of clients that do not log in: memory and log stay bounded, good clients are served meanwhile."""

import threading
import time
from collections.abc import Iterator
from urllib.request import urlopen

import pytest

from headrace.testing import Broker
from headrace.testing.process import BrokerProcess
from tests.interop.raw_client import METADATA, Error
from tests.waiting import until

from .flood import (
    CLIENT_HELLO_BEGINS,
    SOURCES,
    count_open,
    failing_logins,
    resident_mib,
    silent_connections,
)
from .wire import PASSWORD, Client, trusting

MOST, MOST_PER_IP = 40, 25


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "listeners": "sasl_plain://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "connection.failed.authentication.delay.ms": 20,
    }
    folder = tmp_path_factory.mktemp("broker")
    admin = {"HEADRACE_INITIAL_ADMIN": f"alice:{PASSWORD}"}
    broker = BrokerProcess(folder / "data", settings=settings, env=admin, log_file=folder / "log")
    try:
        yield broker.start()
    finally:
        broker.close()


class GoodClient(threading.Thread):
    """Sends small requests on a connection of its own, and logs in again from time to time."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._address = bootstrap
        self._is_over = threading.Event()
        self.request_times: list[float] = []
        self.login_times: list[float] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with Client(self._address) as client:
                assert client.log_in("SCRAM-SHA-256").error_code == Error.none
                while not self._is_over.wait(0.005):
                    began = time.monotonic()
                    assert client.call(METADATA, 4, topics=[]).brokers
                    self.request_times.append(time.monotonic() - began)
                    if len(self.request_times) % 20 == 0:
                        self._log_in()
        except BaseException as error:
            self.error = error

    def _log_in(self) -> None:
        began = time.monotonic()
        with Client(self._address) as client:
            assert client.log_in("PLAIN").error_code == Error.none
        self.login_times.append(time.monotonic() - began)

    def __enter__(self) -> "GoodClient":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()
        assert self.error is None, repr(self.error)


def _assert_bounded(broker: Broker, data: bytes) -> None:
    """No more than the limits are open, and a good client gets in."""
    tls = trusting(broker) if data else None
    crowd = silent_connections(broker.bootstrap, 4 * MOST_PER_IP, data, SOURCES[0])
    try:
        until(lambda: count_open(crowd) <= MOST_PER_IP, lambda: f"{count_open(crowd)} are open", 10)
        for source in SOURCES[1:]:
            crowd += silent_connections(broker.bootstrap, MOST_PER_IP, data, source)
        until(lambda: count_open(crowd) <= MOST, lambda: f"{count_open(crowd)} are open", 10)
        assert count_open(crowd) > MOST_PER_IP
        with Client(broker.bootstrap, tls) as good:
            assert good.log_in("SCRAM-SHA-256").error_code == Error.none
            # One that has logged in does not count: a hundred more do not close it.
            crowd += silent_connections(broker.bootstrap, 2 * MOST, data, SOURCES[0])
            assert good.call(METADATA, 4, topics=[]).brokers
    finally:
        for each in crowd:
            each.close()


def test_half_done_handshakes_are_bounded() -> None:
    settings = {"max.pending.connections": MOST, "max.pending.connections.per.ip": MOST_PER_IP}
    with Broker(tls=True, users={"alice": PASSWORD}, settings=settings) as broker:
        _assert_bounded(broker, CLIENT_HELLO_BEGINS)


def test_half_done_handshakes_of_https_are_bounded() -> None:
    settings = {"max.pending.connections": MOST, "max.pending.connections.per.ip": MOST_PER_IP}
    with Broker(tls=True, settings=settings) as broker:
        address = broker.http_url.removeprefix("https://")
        crowd = silent_connections(address, 4 * MOST_PER_IP, CLIENT_HELLO_BEGINS)
        try:
            until(lambda: count_open(crowd) <= MOST_PER_IP, lambda: f"{count_open(crowd)} are open", 10)
            with urlopen(broker.http_url, b"Action=ListQueues", context=trusting(broker)) as answer:
                assert answer.status == 200
        finally:
            for each in crowd:
                each.close()


def test_connections_without_a_login_are_bounded() -> None:
    settings = {"max.pending.connections": MOST, "max.pending.connections.per.ip": MOST_PER_IP}
    with Broker(users={"alice": PASSWORD}, settings=settings) as broker:
        _assert_bounded(broker, b"")


def test_thousands_of_silent_connections_take_little_memory(process: BrokerProcess) -> None:
    before_mib = resident_mib(process.pid)
    crowd = []
    with GoodClient(process.bootstrap) as good:
        try:
            for source in SOURCES:
                # Each announces as large a request as it may, and sends nearly all of it.
                crowd += silent_connections(process.bootstrap, 500, (65_000).to_bytes(4, "big") + bytes(60_000), source)
            grown_mib = resident_mib(process.pid) - before_mib
        finally:
            for each in crowd:
                each.close()
    assert grown_mib < 110, "1,000 of 64 KiB each, and what they cost besides"
    assert _p99(good.request_times) < 1.0


@pytest.mark.parametrize(("mechanism", "count"), [("SCRAM-SHA-256", 2_000), ("PLAIN", 100)])
def test_failing_logins(process: BrokerProcess, mechanism: str, count: int) -> None:
    _flood(process, mechanism, count)


@pytest.mark.slow
def test_twenty_thousand_failing_logins(process: BrokerProcess) -> None:
    _flood(process, "SCRAM-SHA-256", 20_000)


def _flood(process: BrokerProcess, mechanism: str, count: int) -> None:
    failing_logins(process.bootstrap, mechanism, 50, at_a_time=50)
    before_mib, lines_before, began = resident_mib(process.pid), len(process.stderr.splitlines()), time.monotonic()
    with GoodClient(process.bootstrap) as good:
        failing_logins(process.bootstrap, mechanism, count, at_a_time=100)
    seconds = time.monotonic() - began
    lines = len(process.stderr.splitlines()) - lines_before
    print(
        f"{count} failed logins with {mechanism} in {seconds:.1f} s: "
        f"{resident_mib(process.pid) - before_mib:+.1f} MiB, "
        f"{lines} lines; p99 of a good client's requests {1000 * _p99(good.request_times):.0f} ms, "
        f"logins {1000 * _p99(good.login_times):.0f} ms"
    )
    assert resident_mib(process.pid) - before_mib < 30
    assert lines <= (seconds + 2) * len(SOURCES)
    assert "Traceback" not in process.stderr
    assert _p99(good.request_times) < 1.0
    assert _p99(good.login_times) < 5.0


def _p99(times: list[float]) -> float:
    assert times
    return sorted(times)[int(len(times) * 0.99)]
