"""Measure Headrace beside the physical limit and its peers, in one go, and write a table and a plot of ratios.

Rounds are interleaved: in each round every system gets its turn, in changing order, so that whatever else the machine
does hits all alike; a ratio is only ever taken within a round. See bench/README.md for what each workload does.
"""

import argparse
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from harness.gate import add_options, run_gate
from harness.lab import FULL, PEERS, QUICK, Lab, MeasurementFailed, Variant
from harness.process import Process, ProcessFailed
from harness.report import Results, markdown, number, plot, write_json
from harness.systems import BENCH_DIR, Unavailable
from harness.targets import judge
from harness.workload import Workload
from harness.workloads import all_workloads

REPOSITORY = BENCH_DIR.parent


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="some minutes; shows that all is well (the default)")
    length.add_argument("--full", action="store_true", help="an hour or more and 40 GB of disk; gives the figures")
    parser.add_argument(
        "--only", action="append", metavar="WORKLOAD", help="only workloads that begin with this; may repeat"
    )
    parser.add_argument("--peers", default=",".join(PEERS), help="peers to measure, by comma (default: %(default)s)")
    parser.add_argument("--rounds", type=int, help="rounds of each workload")
    parser.add_argument("--seconds", type=float, help="measured seconds per round of each throughput workload")
    parser.add_argument("--work-dir", type=Path, help="where data goes while it runs (default: beside the repository)")
    parser.add_argument("--results-dir", type=Path, default=BENCH_DIR / "results")
    parser.add_argument(
        "--headrace", metavar="COMMAND", help="how to run Headrace (default: the one beside this Python)"
    )
    parser.add_argument("--list", action="store_true", help="list the workloads and end")
    add_options(parser)
    return parser.parse_args()


def environment() -> dict[str, Any]:
    def said(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY).stdout.strip()

    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    memory_kb = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "commit": said("git", "describe", "--always", "--dirty"),
        "cores": os.cpu_count(),
        "processor": models[0] if models else platform.machine(),
        "memory": f"{memory_kb / 1e6:.0f} GB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load average at the start": f"{os.getloadavg()[0]:.2f}",
    }


class Progress:
    """One line per measurement, with how far the run is."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._begin = time.monotonic()

    def begin(self, workload: Workload, label: str, round_number: int) -> None:
        self._done += 1
        elapsed = int(time.monotonic() - self._begin)
        share = f"{self._done}/{self._total}"
        clock = f"{elapsed // 60}:{elapsed % 60:02d}"
        print(f"[{share:>8} {clock:>6}] {workload.name:<24} round {round_number}  {label:<24}", end="", flush=True)

    def end(self, workload: Workload, result: dict[str, Any]) -> None:
        if "error" in result:
            print(f"failed: {result['error']}", flush=True)
            return
        value = result.get(workload.metric.key)
        print("" if value is None else f"{number(value):>10} {workload.metric.unit}", flush=True)


def run_workload(lab: Lab, workload: Workload, rounds: int, progress: Progress) -> dict[str, list[dict[str, Any]]]:
    """All rounds of a workload. What fails is in the table with its reason, and the rest goes on."""
    results: dict[str, list[dict[str, Any]]] = {variant.label: [] for variant in workload.variants}
    with ExitStack() as stack:
        ready: list[tuple[Variant, str]] = []
        for variant in workload.variants:
            try:
                lab.made(variant.system)
                ready.append((variant, stack.enter_context(workload.prepared(lab, variant))))
            except Unavailable as reason:
                results[variant.label].append({"error": str(reason)})
            except (MeasurementFailed, ProcessFailed, subprocess.TimeoutExpired, OSError) as reason:
                results[variant.label].append({"error": f"not set up: {reason}"})
                print(f"{workload.name}: {variant.label} could not be set up: {reason}", flush=True)
        for number_of_round in range(rounds):
            turn = number_of_round % max(1, len(ready))
            for variant, topic in ready[turn:] + ready[:turn]:
                progress.begin(workload, variant.label, number_of_round + 1)
                try:
                    result: dict[str, Any] = dict(workload.run(lab, variant, topic))
                except (MeasurementFailed, ProcessFailed, Unavailable, subprocess.TimeoutExpired, OSError) as reason:
                    result = {"error": str(reason)}
                results[variant.label].append(result)
                progress.end(workload, result)
    return results


def interrupted(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    args = parse_arguments()
    for number_of_signal in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number_of_signal, interrupted)
    sizes = FULL if args.full else QUICK
    if args.rounds:
        sizes = replace(sizes, rounds=args.rounds)
    if args.seconds:
        sizes = replace(sizes, seconds=args.seconds)
    peers = tuple(name.strip() for name in args.peers.split(",") if name.strip())
    if unknown := set(peers) - set(PEERS):
        print(f"unknown peer {', '.join(sorted(unknown))}: choose from {', '.join(PEERS)}", file=sys.stderr)
        return 2
    parent = args.work_dir or REPOSITORY / ".cache"
    parent.mkdir(parents=True, exist_ok=True)
    if args.gate is not None:
        return run_gate(args, REPOSITORY, parent)
    work_dir = Path(tempfile.mkdtemp(prefix="bench-work-", dir=parent)).resolve()
    lab = Lab(work_dir, sizes, peers, shlex.split(args.headrace) if args.headrace else None)
    workloads = all_workloads(lab)
    if args.only:
        workloads = [workload for workload in workloads if workload.name.startswith(tuple(args.only))]
    if args.list or not workloads:
        shutil.rmtree(work_dir)
        for workload in all_workloads(lab):
            print(f"{workload.name:<24} {workload.title}")
        return 0 if args.list else 2
    return _measure(args, lab, workloads)


def _rounds(workload: Workload, of_the_run: int) -> int:
    return max(workload.least_rounds, min(of_the_run, workload.rounds or of_the_run))


def _measure(args: argparse.Namespace, lab: Lab, workloads: list[Workload]) -> int:
    facts = environment()
    results: Results = {}
    rounds = {workload.name: _rounds(workload, lab.sizes.rounds) for workload in workloads}
    progress = Progress(sum(rounds[workload.name] * len(workload.variants) for workload in workloads))
    stopped = False
    try:
        for workload in workloads:
            results[workload.name] = run_workload(lab, workload, rounds[workload.name], progress)
    except KeyboardInterrupt:
        stopped = True
        print("\nstopping; what was measured so far is written", flush=True)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        lab.stop_all()
        Process.stop_all()
        shutil.rmtree(lab.work_dir, ignore_errors=True)
    facts |= {"run": "full" if args.full else "quick", "systems": lab.versions, "missing": lab.missing}
    facts["load average at the end"] = f"{os.getloadavg()[0]:.2f}"
    _write(args.results_dir, facts, workloads, results)
    return 130 if stopped else 0


def _write(results_dir: Path, facts: dict[str, Any], workloads: list[Workload], results: Results) -> None:
    verdicts = judge(results)
    results_dir.mkdir(parents=True, exist_ok=True)
    json_path = results_dir / f"{facts['date'][:16].replace(':', '')}.json"
    write_json(json_path, facts, results, verdicts)
    table = markdown(facts, workloads, results, verdicts)
    (results_dir / "latest.md").write_text(table)
    print(f"\n{table}")
    drawn = plot(results_dir / "latest.png", verdicts)
    missed = [verdict for verdict in verdicts if verdict.is_met is False]
    print(f"{len(verdicts)} comparisons, {len(missed)} targets missed. Written: {json_path}, latest.md", end="")
    print(", latest.png" if drawn else " (no plot: matplotlib is not installed, see bench/requirements.txt)")


if __name__ == "__main__":
    sys.exit(main())
