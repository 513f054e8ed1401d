"""The gate before a release: does this work tree need more CPU time per operation than the last release?

Both revisions run in the same environment, as brokers side by side, in short turns of the same number of operations, in
changing order. A set of brokers is one of the revision before, one of this work tree and once more one of the revision
before, the control. Two processes of the same code differ by some percent, by the seed of their hashes and the layout
of their memory: so the brokers of a set have the same seed and no random addresses, their folders have names of the
same length, and there are several sets. `regressions.py` judges.
"""

import argparse
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaException

from harness.gate_loads import LOADS, Load, RevisionBroker
from harness.process import Process, ProcessFailed
from harness.regressions import Judgement, Outcome, Turns, judged_turns
from harness.revisions import Revision, RevisionUnusable, git, revision, unmet_requirements, work_tree

_BEFORE, _AFTER, _CONTROL = "before", "latest", "beside"
_SIDES = (_BEFORE, _AFTER, _CONTROL)
_FIXED_LAYOUT = ["setarch", "-R"]
_FAILURES = (ConnectionError, KafkaException, OSError, ProcessFailed, TimeoutError, ValueError)

SetTimes = dict[str, Turns]
"""What a set of processes found, by operation."""


class Result(NamedTuple):
    before_us: float
    after_us: float
    judgement: Judgement


def add_options(parser: argparse.ArgumentParser) -> None:
    gate = parser.add_argument_group("the gate before a release")
    gate.add_argument(
        "--gate",
        nargs="?",
        const="",
        metavar="REV",
        help="compare CPU per operation with this revision (default: the last release) and fail if more is needed",
    )
    gate.add_argument("--sets", type=int, default=5, help="sets of processes (default: %(default)s)")
    gate.add_argument("--turns", type=int, default=32, help="turns of each process of a set (default: %(default)s)")
    gate.add_argument("--turn-ms", type=float, default=15.0, help="CPU time of a turn (default: %(default)s)")
    gate.add_argument("--tolerance", type=float, default=0.03, help="what may be lost (default: %(default)s, 3 %%)")


def run_gate(args: argparse.Namespace, repository: Path, work_dir: Path) -> int:
    """The exit code: 0, 1 with a regression, 2 if the revisions cannot be compared, 130 if it was stopped."""
    try:
        return _compared(args, repository, work_dir)
    except RevisionUnusable as reason:
        print(f"the gate cannot be run: {reason}", flush=True)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; nothing is written", flush=True)
        return 130
    finally:
        Process.stop_all()


def _compared(args: argparse.Namespace, repository: Path, work_dir: Path) -> int:
    before = revision(repository, args.gate)
    after = git(repository, "describe", "--always", "--dirty", "--abbrev=8", "--exclude=*")
    print(f"{after} beside {before.commit} ({before.why})", flush=True)
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gate-", dir=work_dir))).resolve()
        old = stack.enter_context(work_tree(repository, before.commit, folder / _BEFORE))
        if unmet := unmet_requirements(old):
            raise RevisionUnusable(f"{before.commit} needs {', '.join(unmet)}, which this environment does not have")
        # Paths of the same length: they are in the memory of the processes, too.
        (folder / _AFTER).symlink_to(repository)
        sources = {side: folder / (_AFTER if side == _AFTER else _BEFORE) / "src" for side in _SIDES}
        for source in set(sources.values()):
            # A process that has to compile its modules has another layout of memory.
            subprocess.run([sys.executable, "-m", "compileall", "-q", str(source)], check=False)
        turns, missing = _measured(args, folder, sources)
    results = {name: _result(sets, args.tolerance) for name, sets in turns.items()}
    _write(args, _table(_facts(args, before, after, load), results, missing))
    slower = [name for name, result in results.items() if result.judgement.outcome is Outcome.SLOWER]
    print(f"Slower: {'; '.join(slower)}" if slower else "No regression beyond the noise.", flush=True)
    return 1 if slower else 0


def _facts(args: argparse.Namespace, before: Revision, after: str, load: float) -> list[str]:
    layout = "the same hash seed in a set, no random addresses" if _prefix() else "**addresses are random here**"
    return [
        f"- {datetime.now(UTC):%d %B %Y}, {_processor()}, {os.cpu_count()} cores",
        f"- load average {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end",
        f"- {after} beside {before.commit}: {before.why}",
        f"- {args.sets} sets of three processes, {args.turns} turns of {args.turn_ms:g} ms of CPU time each; {layout}",
        f"- {args.tolerance:.0%} may be lost; noise is what the ratio can be off by chance, at 97.5 %",
    ]


def _write(args: argparse.Namespace, text: str) -> None:
    path = args.results_dir / f"gate-{datetime.now(UTC):%Y-%m-%d}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(f"\n{text}\nWritten: {path}", flush=True)


def _measured(
    args: argparse.Namespace, folder: Path, sources: Mapping[str, Path]
) -> tuple[dict[str, list[Turns]], dict[str, str]]:
    """The turns of all sets, by operation; and why some loads could not be measured."""
    found: dict[str, list[Turns]] = defaultdict(list)
    missing: dict[str, str] = {}
    for seed in range(args.sets):
        print(f"set {seed + 1} of {args.sets}", flush=True)
        for operation, turns in _measured_set(args, folder, sources, seed, missing).items():
            found[operation].append(turns)
    return found, missing


def _measured_set(
    args: argparse.Namespace, folder: Path, sources: Mapping[str, Path], seed: int, missing: dict[str, str]
) -> SetTimes:
    with ExitStack() as stack:
        brokers = {}
        for side in _SIDES:
            broker = RevisionBroker(folder, f"{seed}-{side}", sources[side], seed, _prefix())
            stack.callback(broker.clear)
            stack.callback(broker.stop)
            try:
                broker.start()
            except ProcessFailed as reason:
                raise RevisionUnusable(f"the broker of {side} does not start: {reason}") from None
            brokers[side] = broker
        loads: dict[str, dict[str, Load]] = {}
        steps: dict[str, int] = {}
        for name in LOADS:
            try:
                started = {side: _started(name, side, brokers[side], stack) for side in _SIDES}
                steps[name] = _calibrated(started, args.turn_ms)
                loads[name] = started
            except _FAILURES as reason:
                missing[name] = str(reason)
        return _turns(args, loads, steps)


def _started(name: str, side: str, broker: RevisionBroker, stack: ExitStack) -> Load:
    """A load that has done one step. Only the revision before may lack what it asks for."""
    try:
        load = LOADS[name](broker)
        stack.callback(load.close)
        load.turn(1)
    except _FAILURES as reason:
        if side == _AFTER:
            raise RevisionUnusable(f"this work tree fails at {name}: {reason}") from None
        raise
    return load


def _calibrated(loads: Mapping[str, Load], turn_ms: float) -> int:
    """How many steps take a turn's CPU time; every process is warm then."""
    steps = 1
    for load in loads.values():
        while (spent_ms := load.spent_ms(steps)) < turn_ms / 2:
            steps = max(steps + 1, min(steps * 8, int(steps * turn_ms / max(spent_ms, 0.01))))
    return steps


def _turns(args: argparse.Namespace, loads: Mapping[str, Mapping[str, Load]], steps: Mapping[str, int]) -> SetTimes:
    times: SetTimes = {}
    for number in range(args.turns):
        shift = number % len(_SIDES)
        order = _SIDES[shift:] + _SIDES[:shift]
        for name, sides in loads.items():
            costs = {side: sides[side].turn(steps[name]) for side in (order if number % 2 else order[::-1])}
            for operation in costs[_BEFORE]:
                turns = times.setdefault(operation, Turns([], [], []))
                for found, side in zip(turns, (_BEFORE, _AFTER, _CONTROL), strict=True):
                    found.append(costs[side][operation])
    return times


def _result(sets: list[Turns], tolerance: float) -> Result:
    before = statistics.fmean(statistics.median(each.before) for each in sets)
    after = statistics.fmean(statistics.median(each.after) for each in sets)
    return Result(before, after, judged_turns(sets, tolerance))


def _table(facts: list[str], results: Mapping[str, Result], missing: Mapping[str, str]) -> str:
    lines = ["# CPU time per operation beside an earlier revision", "", *facts, ""]
    lines += [
        "| µs of CPU | before | after | after : before | control | noise | |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for name, (before_us, after_us, judgement) in results.items():
        noise = f"{judgement.noise:.1%}" if math.isfinite(judgement.noise) else "one set"
        cells = [name, f"{before_us:.1f}", f"{after_us:.1f}", f"{judgement.ratio:.3f}", f"{judgement.control:.3f}"]
        lines.append("| " + " | ".join([*cells, noise, judgement.outcome.value]) + " |")
    lines += [f"| {name} | | | | | | not measured: {reason} |" for name, reason in missing.items()]
    return "\n".join(lines) + "\n"


def _prefix() -> list[str]:
    """What a command begins with so that addresses are not random; nothing where that is not allowed."""
    if shutil.which(_FIXED_LAYOUT[0]) is None:
        return []
    done = subprocess.run([*_FIXED_LAYOUT, "true"], capture_output=True, check=False)
    return _FIXED_LAYOUT if done.returncode == 0 else []


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
