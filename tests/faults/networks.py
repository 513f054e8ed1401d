"""A network of namespaces that can be cut between any two of its nodes, in one direction or both.

Every node is a network namespace with one address, on a bridge in a namespace of its own, where the clients are. None
of it has a name or touches the machine's own network, and all of it is gone when the test's process and those that it
started are. A cut drops packets silently, as a broken cable does: who sends has the wrong hardware address for who
receives. Needs root and iproute2.
"""

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_CLONE_NEWNET = 0x40000000
_OWN_NAMESPACE = "/proc/thread-self/ns/net"
_NOBODY = "02:00:00:00:00:ff"
CLIENTS = "clients"
"""The node where the test and its clients are."""


class NotPossible(Exception):
    """This machine does not let us make networks; the reason is the message."""


class Network:
    """Nodes by name, each with an address. `inside` puts the calling thread, and whatever it starts, into a node."""

    def __init__(self, *names: str) -> None:
        if os.geteuid() != 0:
            raise NotPossible("making network namespaces needs root")
        for tool in ("ip", "nsenter"):
            if shutil.which(tool) is None:
                raise NotPossible(f"{tool} is not installed")
        self._numbers = {name: number for number, name in enumerate((CLIENTS, *names), 1)}
        self._namespaces: dict[str, int] = {}
        self._cuts: set[tuple[str, str]] = set()
        try:
            for name in self._numbers:
                self._namespaces[name] = _new_namespace()
            self._connect()
        except OSError as error:
            self.close()
            raise NotPossible(f"network namespaces cannot be made here: {error}") from None
        except BaseException:
            self.close()
            raise

    def address(self, name: str) -> str:
        return f"10.77.0.{self._numbers[name]}"

    def prefix(self, name: str) -> list[str]:
        """What makes a command run in that node."""
        return ["nsenter", f"--net={self._path(name)}"]

    @contextmanager
    def inside(self, name: str = CLIENTS) -> Iterator[None]:
        """The calling thread is in that node, and so are the threads and processes that it starts."""
        before = os.open(_OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(self._namespaces[name])
            try:
                yield
            finally:
                _enter(before)
        finally:
            os.close(before)

    def cut(self, source: str, target: str, *, both_ways: bool = True) -> None:
        """Nothing that `source` sends reaches `target` any more, nor the other way round."""
        self._cuts.add((source, target))
        self._ip(source, self._neighbour(source, target, _NOBODY))
        if both_ways:
            self.cut(target, source, both_ways=False)

    def isolate(self, name: str, *, but: tuple[str, ...] = ()) -> None:
        """Cut one off from everybody else, but from those."""
        for other in self._numbers:
            if other != name and other not in but:
                self.cut(name, other)

    def heal(self) -> None:
        """Undo all cuts."""
        for source, target in self._cuts:
            self._ip(source, self._neighbour(source, target, self._hardware(target)))
        self._cuts.clear()

    def close(self) -> None:
        """Let go of the namespaces; what still runs in one keeps it until it ends."""
        for descriptor in self._namespaces.values():
            os.close(descriptor)
        self._namespaces.clear()

    def _connect(self) -> None:
        clients = ["link set lo up", "link add br0 type bridge", f"link set br0 address {self._hardware(CLIENTS)}"]
        for name, number in self._numbers.items():
            if name != CLIENTS:
                clients.append(f"link add v{number} type veth peer name eth0 netns {self._path(name)}")
                clients.append(f"link set v{number} master br0 up")
        self._ip(CLIENTS, *clients, f"address add {self.address(CLIENTS)}/24 dev br0", "link set br0 up")
        for name in self._numbers:
            if name != CLIENTS:
                up = ["link set lo up", f"link set eth0 address {self._hardware(name)}"]
                self._ip(name, *up, f"address add {self.address(name)}/24 dev eth0", "link set eth0 up")
        for name in self._numbers:
            others = (other for other in self._numbers if other != name)
            self._ip(name, *(self._neighbour(name, other, self._hardware(other)) for other in others))

    def _neighbour(self, source: str, target: str, hardware: str) -> str:
        device = "br0" if source == CLIENTS else "eth0"
        return f"neighbour replace {self.address(target)} lladdr {hardware} dev {device} nud permanent"

    def _hardware(self, name: str) -> str:
        return f"02:00:00:00:00:{self._numbers[name]:02x}"

    def _path(self, name: str) -> str:
        return f"/proc/{os.getpid()}/fd/{self._namespaces[name]}"

    def _ip(self, name: str, *commands: str) -> None:
        command = [*self.prefix(name), "ip", "-batch", "-"]
        done = subprocess.run(command, input="\n".join(commands), capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotPossible(f"ip cannot do this here: {done.stderr.strip()}")


_libc = ctypes.CDLL(None, use_errno=True)


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET):
        _raise_errno()


def _new_namespace() -> int:
    """A new network namespace, as a descriptor that keeps it. Made in a thread, which takes its own with it."""
    made: list[int] = []
    errors: list[OSError] = []

    def make() -> None:
        try:
            if _libc.unshare(_CLONE_NEWNET):
                _raise_errno()
            made.append(os.open(_OWN_NAMESPACE, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            errors.append(error)

    maker = threading.Thread(target=make)
    maker.start()
    maker.join()
    if errors:
        raise errors[0]
    return made[0]


def _raise_errno() -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
