"""What hostile schemas cost a broker: how long until each is answered, and how long the event loop stood still.

    .venv/bin/python -m bench.hostile_schemas --size 1000000

Each is registered as the second version of a subject, over HTTP, twice. The first time gives the processor time of the
broker, which no stall of its loop can exceed, and of the process that checks large schemas. The second time another
connection asks for /healthz all the time: its slowest answer, less the usual one, is what the loop stood still. Seconds
and stalls are those of an idle machine only.
"""

import argparse
import json
import statistics
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from tests.unit.schemas.hostile import HOSTILE, HostilePair

from headrace.testing.process import BrokerProcess

_TICKS_PER_S = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1_000_000)
    size = parser.parse_args().size
    with TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder) / "data", log_file=Path(folder) / "log")
        broker.start()
        try:
            address = urlsplit(broker.http_url).netloc
            columns = ("bytes", "seconds", "stall ms", "broker cpu ms", "check cpu s")
            print(f"{'':30}" + "".join(f"{each:>14}" for each in columns) + "  answer")
            register(address, "warm", HostilePair("JSON", "", json.dumps({"title": "x" * 100_000})))
            measure(broker.pid, address, "10 MB", HostilePair("JSON", "", json.dumps({"title": "x" * 10_000_000})))
            for name, make in HOSTILE.items():
                measure(broker.pid, address, name, make(size))
        finally:
            broker.terminate()


def measure(pid: int, address: str, name: str, pair: HostilePair) -> None:
    subject = name.replace(" ", "-")
    register(address, subject, HostilePair(pair.kind, "", pair.old)) if pair.old else None
    own_s, all_s = cpu_s(pid)
    register(address, subject, pair)
    own_s, all_s = cpu_s(pid)[0] - own_s, cpu_s(pid)[1] - all_s
    with Pings(address) as pings:
        before = time.monotonic()
        answer = register(address, subject, pair)
        took = time.monotonic() - before
    figures = f"{len(pair.new):>14}{took:>14.2f}{pings.stall_ms:>14.1f}{1000 * own_s:>14.0f}{all_s - own_s:>14.2f}"
    print(f"{name:30}{figures}  {answer[:70]}", flush=True)


def cpu_s(pid: int) -> tuple[float, float]:
    """Processor time of a process, and with its children."""
    own, children = 0.0, 0.0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        used_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
        if int(folder.name) == pid:
            own = used_s
            children += (int(fields[13]) + int(fields[14])) / _TICKS_PER_S
        elif int(fields[1]) == pid:
            children += used_s
    return own, own + children


def register(address: str, subject: str, pair: HostilePair) -> str:
    connection = HTTPConnection(address, timeout=120)
    body = json.dumps({"schema": pair.new, "schemaType": pair.kind})
    try:
        connection.request("POST", f"/registry/subjects/{subject}/versions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        found = json.loads(response.read())
    except (BrokenPipeError, ConnectionResetError):
        return "refused before it was read"
    finally:
        connection.close()
    return f"{response.status} {found.get('message', 'registered')}"


class Pings:
    """Asks for /healthz until it is left."""

    def __init__(self, address: str) -> None:
        self._connection = HTTPConnection(address, timeout=120)
        self._is_done = threading.Event()
        self._times: list[float] = []
        self._thread = threading.Thread(target=self._run)

    @property
    def stall_ms(self) -> float:
        return 1000 * (max(self._times) - statistics.median(self._times))

    def __enter__(self) -> "Pings":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_done.set()
        self._thread.join()
        self._connection.close()

    def _run(self) -> None:
        while not self._is_done.is_set() or len(self._times) < 20:
            before = time.monotonic()
            self._connection.request("GET", "/healthz")
            self._connection.getresponse().read()
            self._times.append(time.monotonic() - before)
            self._is_done.wait(0.002)


if __name__ == "__main__":
    main()
