"""Connections without load, over TLS or not: many that stay open, or as many as can be opened one after the other.

    connections.py idle ...         prove each alive with one request, hold them until stdin closes
    connections.py handshakes ...   each makes one request and is closed; some threads open them

It prints one line of JSON, as `load.py` does.
"""

import argparse
import json
import resource
import sys
import threading
import time

from harness import wire
from harness.secure_wire import add_security, connector_of


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def idle(args: argparse.Namespace) -> dict[str, float]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    socks = []
    begin = time.perf_counter()
    connector = connector_of(args)
    for _ in range(args.connections):
        sock = connector.connect(args.port)
        sock.sendall(wire.api_versions_request())
        wire.receive_frame(sock)
        socks.append(sock)
    print(json.dumps({"connections": len(socks), "seconds": time.perf_counter() - begin}), flush=True)
    sys.stdin.read()
    alive = 0
    for sock in socks:
        sock.sendall(wire.api_versions_request())
        wire.receive_frame(sock)
        alive += 1
    return {"alive": alive}


def handshakes(args: argparse.Namespace) -> dict[str, float]:
    """Each thread opens one connection after the other, without resuming TLS sessions."""
    connector = connector_of(args)
    begin = time.perf_counter()
    counts = [0] * args.connections

    def work(number: int) -> None:
        while time.perf_counter() - begin < args.seconds:
            with connector.connect(args.port) as sock:
                sock.sendall(wire.api_versions_request())
                wire.receive_frame(sock)
            counts[number] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(args.connections)]
    cpu = cpu_s()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - begin
    done = sum(counts)
    return {"handshakes": done, "handshakes_s": done / elapsed, "client_busy": (cpu_s() - cpu) / elapsed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    for name, run in (("idle", idle), ("handshakes", handshakes)):
        mode = modes.add_parser(name)
        mode.set_defaults(run=run)
        mode.add_argument("--port", type=int, required=True)
        mode.add_argument("--connections", type=int, default=1)
        mode.add_argument("--seconds", type=float, default=2.0)
        add_security(mode)
    args = parser.parse_args()
    print(json.dumps(args.run(args)), flush=True)


if __name__ == "__main__":
    main()
