"""`python -m headrace.testing.sim --seeds 10000`: run many seeds on every core, and stop at the first that fails."""

import argparse
import os
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count

from headrace.testing.sim.runner import SimOutcome, run_seed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m headrace.testing.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds to run")
    parser.add_argument("--first-seed", type=int, default=0, help="the first seed; the others follow it")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first seed that fails")
    parser.add_argument("--trace", action="store_true", help="print the trace also of a run that passed")
    parser.add_argument("--linked", action="store_true", help="two clusters, one of which mirrors the other")
    options = parser.parse_args()
    if options.seeds == 1:
        outcome = run_seed(options.first_seed, keep_trace=options.trace, linked=options.linked)
        _report(outcome, linked=options.linked)
        if outcome.failure is None:
            _say(f"seed {outcome.seed} passed: {_text(outcome)}\n")
        return 1 if outcome.failure else 0
    return _run_many(options.first_seed, options.seeds, options.processes, go_on=options.go_on, linked=options.linked)


def _run_many(first: int, seeds: int, processes: int, *, go_on: bool, linked: bool) -> int:
    began_s = time.monotonic()
    left = iter(range(first, first + seeds))
    totals: dict[str, int] = {}
    failed: list[int] = []
    with ProcessPoolExecutor(processes, max_tasks_per_child=200) as pool:
        running: set[Future[SimOutcome]] = set()
        for done_count in count(1):
            while len(running) < processes * 2 and (go_on or not failed) and (seed := next(left, None)) is not None:
                running.add(pool.submit(run_seed, seed, linked=linked))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                outcome = future.result()
                for name, number in {**outcome.counts, "seeds": 1, "events": outcome.events}.items():
                    totals[name] = totals.get(name, 0) + number
                if outcome.failure is not None:
                    failed.append(outcome.seed)
                    _report(outcome, linked=linked)
            if done_count % 20 == 0 or sys.stderr.isatty():
                elapsed_s = time.monotonic() - began_s
                _say(f"\r{totals['seeds']} of {seeds} seeds, {len(failed)} failed, {elapsed_s:.0f} s ")
    _say(f"\n{', '.join(f'{number} {name}' for name, number in totals.items())}\n")
    if failed:
        _say(f"failed: {', '.join(map(str, sorted(failed)))}\n")
    return 1 if failed else 0


def _report(outcome: SimOutcome, *, linked: bool) -> None:
    if outcome.trace:
        sys.stdout.write(f"\n{outcome.trace}\n")
    if outcome.failure is not None:
        sys.stdout.write(
            f"{outcome.scenario}\nseed {outcome.seed} failed after {outcome.virtual_s:.3f} s: {outcome.failure}\n"
            f"again: make sim FIRST={outcome.seed} SEEDS=1{' ARGS=--linked' if linked else ''}\n"
        )
    sys.stdout.flush()


def _text(outcome: SimOutcome) -> str:
    return f"{outcome.virtual_s:.1f} s of virtual time, {outcome.events} events, {outcome.counts}"


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
