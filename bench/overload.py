"""A broker under more load than it can take: what urgent requests wait for, and what memory it needs.

    overload.py flood [--producers 500] [--seconds 20] [--value-bytes 1000]    producers that offer too much
    overload.py cold [--gigabytes 2] [--readers 1]                             consumers of old data beside the tail

Run it with PYTHONPATH=. from the root of the repository. `--folder` is where brokers store their data. The first prints
the times of requests of other clients meanwhile, the second the time from produce to consume with and without readers.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults import probes
from tests.faults.catch_up import CatchUpProcess, make_cold
from tests.faults.flood import FloodPlan, FloodProcess, FloodResult
from tests.interop import batches, raw_client

from headrace.testing.process import BrokerProcess

_MIB = 1 << 20


def flood(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-overload-", dir=args.folder) as folder:
        broker = BrokerProcess(Path(folder) / "data", settings={"preload.enable": True})
        with broker:
            raw_client.create_topic(broker.bootstrap, "flood", args.partitions, {"retention.bytes": str(1 << 30)})
            raw_client.create_topic(broker.bootstrap, "quiet")
            memory = probes.MemoryWatch([broker.pid])
            asking = [
                probes.heartbeats(broker.bootstrap, "beats"),
                probes.metadata(broker.bootstrap),
                probes.commits(broker.bootstrap, "commits", "quiet"),
                probes.produces(broker.bootstrap, "quiet"),
            ]
            plan = FloodPlan(
                "flood",
                [broker.bootstrap] * args.partitions,
                args.producers,
                args.seconds,
                args.rate,
                args.value_bytes,
                args.records,
                in_flight=args.in_flight,
            )
            flooding = FloodProcess(plan, Path(folder))
            try:
                with probes.probing([*asking, memory]):
                    result = flooding.wait()
            finally:
                flooding.close()
            show(result, asking, memory, args)


def cold(args: argparse.Namespace) -> None:
    """Turns with and without consumers of old data, one after the other on one broker."""
    with tempfile.TemporaryDirectory(prefix="headrace-overload-", dir=args.folder) as folder:
        broker = BrokerProcess(Path(folder) / "data", settings={"preload.enable": True})
        with broker:
            raw_client.create_topic(broker.bootstrap, "old", 1, {"segment.bytes": str(128 << 20), "flush.policy": "os"})
            raw_client.create_topic(broker.bootstrap, "tail")
            fill(broker, args.gigabytes)
            old = broker.data_dir / "old-0"
            print(f"{sum(path.stat().st_size for path in old.glob('*.log')) / 1e9:.1f} GB of old data", flush=True)
            with_readers, alone, read = [], [], []
            for turn in range(args.turns):
                alone += (own := tail_times(broker, args.alone_s))
                make_cold(old)
                readers = [CatchUpProcess(broker.bootstrap, "old", 1) for _ in range(args.readers)]
                try:
                    with_readers += (beside := tail_times(broker, None, readers))
                    read += [reader.wait() for reader in readers]
                finally:
                    for reader in readers:
                        reader.close()
                before_ms, after_ms = (percentile_ms(times, 99) for times in (own, beside))
                print(
                    f"  turn {turn + 1}: p99 {before_ms:.1f} -> {after_ms:.1f} ms, {after_ms / before_ms:.2f} times",
                    flush=True,
                )
            rates = [each.bytes / each.seconds / 1e6 for each in read]
            print(f"{args.readers} readers, {min(rates):.0f} to {max(rates):.0f} MB/s each")
            base = show_tail("alone", alone)
            print(f"  p99 ratio {show_tail('with readers', with_readers) / base:.2f}")


def fill(broker: BrokerProcess, gigabytes: float) -> None:
    batch = batches.batch([os.urandom(1000)] * 900)
    with raw_client.Connection(broker.bootstrap) as connection:
        for _ in range(int(gigabytes * 1e9 / len(batch))):
            assert raw_client.produce(connection, "old", batch, acks=1).error_code == raw_client.Error.none


def tail_times(broker: BrokerProcess, seconds: float | None, readers: Sequence[CatchUpProcess] = ()) -> list[float]:
    """Times from produce to consume for some seconds, or while any reader runs."""
    probe = probes.tail(broker.bootstrap, "tail")
    began_s = time.monotonic()
    with probes.probing([probe]):
        while time.monotonic() - began_s < seconds if seconds is not None else any(one.is_running for one in readers):
            time.sleep(0.05)
    return probe.times_s


def percentile_ms(times_s: list[float], percent: int) -> float:
    times = sorted(times_s)
    return times[min(len(times) - 1, len(times) * percent // 100)] * 1000


def show_tail(name: str, times_s: list[float]) -> float:
    p50, p99, most = (percentile_ms(times_s, each) for each in (50, 99, 100))
    print(f"  tail {name:14} p50 {p50:6.1f} ms  p99 {p99:6.1f} ms  max {most:6.1f} ms  ({len(times_s)})", flush=True)
    return p99


def show(
    result: FloodResult, asking: list[probes.LatencyProbe], memory: probes.MemoryWatch, args: argparse.Namespace
) -> None:
    megabytes = result.acked * args.value_bytes * args.records / result.seconds / 1e6
    print(
        f"{args.producers} producers, {args.value_bytes * args.records} B: {result.acked / result.seconds:,.0f} "
        f"requests/s ({megabytes:.0f} MB/s) of {result.offered / result.seconds:,.0f} offered; "
        f"p50 {result.p50_s * 1000:.0f} ms, p99 {result.p99_s * 1000:.0f} ms, max {result.max_s * 1000:.0f} ms; "
        f"errors {result.errors}, lost connections {result.lost_connections}; "
        f"{memory.most_bytes / _MIB:.0f} MiB resident"
    )
    for probe in asking:
        p50, p99, most = (probe.percentile_s(each) * 1000 for each in (50, 99, 100))
        print(f"  {probe.name:14} p50 {p50:7.1f} ms  p99 {p99:7.1f} ms  max {most:7.1f} ms  ({len(probe.times_s)})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where brokers store their data")
    modes = parser.add_subparsers(dest="mode", required=True)
    mode = modes.add_parser("flood")
    mode.set_defaults(run=flood)
    mode.add_argument("--producers", type=int, default=500)
    mode.add_argument("--seconds", type=float, default=20)
    mode.add_argument("--partitions", type=int, default=6)
    mode.add_argument("--rate", type=float, default=1000)
    mode.add_argument("--value-bytes", type=int, default=1000)
    mode.add_argument("--records", type=int, default=1)
    mode.add_argument("--in-flight", type=int, default=5)
    mode = modes.add_parser("cold")
    mode.set_defaults(run=cold)
    mode.add_argument("--gigabytes", type=float, default=2)
    mode.add_argument("--readers", type=int, default=1)
    mode.add_argument("--turns", type=int, default=3)
    mode.add_argument("--alone-s", type=float, default=10)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
