"""The cuts that other tests rely on are cuts: of a connection that is open, of new ones, one way, and until healed."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.faults.networks import CLIENTS, Network, NotPossible


@pytest.fixture
def network() -> Iterator[Network]:
    try:
        made = Network("a", "b")
    except NotPossible as reason:
        pytest.skip(str(reason))
    try:
        yield made
    finally:
        made.close()


def listen(network: Network, name: str) -> socket.socket:
    """A UDP socket: a packet arrives or does not, and nothing is sent again."""
    with network.inside(name):
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listener.bind((network.address(name), 7000))
        listener.settimeout(0.1)
        return listener


def arrives(network: Network, source: str, target: str, listener: socket.socket) -> bool:
    """Whether a packet gets from one to the other in a moment. A new network may lose the first ones."""
    with network.inside(source), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(source.encode(), (network.address(target), 7000))
    try:
        while listener.recv(100).decode() != source:
            pass
    except TimeoutError:
        return False
    return True


def test_cuts_are_one_way_or_both_and_are_healed(network: Network) -> None:
    listeners = {name: listen(network, name) for name in ("a", "b", CLIENTS)}
    pairs = [("a", "b"), ("b", "a"), (CLIENTS, "a"), ("a", CLIENTS), ("b", CLIENTS)]

    def check_reached(*expected: tuple[str, str]) -> None:
        for source, target in pairs:
            is_expected = (source, target) in expected
            end = time.monotonic() + 30
            while not (arrived := arrives(network, source, target, listeners[target])) and is_expected:
                assert time.monotonic() < end, f"nothing gets from {source} to {target}"
            assert arrived == is_expected

    try:
        check_reached(*pairs)
        network.cut("a", "b", both_ways=False)
        check_reached(*pairs[1:])
        network.cut("a", "b")
        check_reached(*pairs[2:])
        network.heal()
        network.isolate("a", but=(CLIENTS,))
        check_reached(*pairs[2:])
        network.isolate("a")
        check_reached(("b", CLIENTS))
        network.heal()
        check_reached(*pairs)
    finally:
        for listener in listeners.values():
            listener.close()


def test_an_open_connection_stalls_and_goes_on(network: Network) -> None:
    with network.inside("b"), socket.create_server((network.address("b"), 7001)) as server:
        with network.inside("a"):
            client = socket.create_connection((network.address("b"), 7001), 10)
        with client, server.accept()[0] as accepted:
            accepted.settimeout(30)
            client.sendall(b"1")
            assert accepted.recv(10) == b"1"
            network.cut("a", "b")
            client.sendall(b"2")
            with network.inside("a"), pytest.raises(TimeoutError):
                socket.create_connection((network.address("b"), 7001), 0.2)
            network.heal()
            assert accepted.recv(10) == b"2"


def test_only_the_thread_inside_is_inside(network: Network) -> None:
    seen: list[list[str]] = []

    def look() -> None:
        seen.append(sorted(name for _, name in socket.if_nameindex()))

    outside = threading.Thread(target=look)
    with network.inside("a"):
        look()
    outside.start()
    outside.join()
    assert seen[0] == ["eth0", "lo"]
    assert "br0" not in seen[1]
