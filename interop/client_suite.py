"""Run the suite of a client library against real `headrace serve` processes, and compare with what is expected."""

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from secured_broker import ADMIN, SecuredAddresses

from headrace.testing.cluster import ClusterProcesses
from headrace.testing.process import BrokerProcess

_SUITE_TIMEOUT_S = 1500
_TEST_TIMEOUT_S = 90


class Unavailable(Exception):
    """The suite cannot be had; the message says why."""


@dataclass(frozen=True)
class Options:
    """What the command line says, but for what is passed on to pytest."""

    brokers: int
    checkout: Path | None
    arguments: list[str]

    @classmethod
    def read(cls, arguments: list[str]) -> "Options":
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--brokers", type=int, default=1)
        parser.add_argument("--checkout", type=Path)
        known, others = parser.parse_known_args(arguments)
        return cls(known.brokers, known.checkout and known.checkout.resolve(), others)

    @property
    def subject(self) -> str:
        return "headrace serve" if self.brokers == 1 else f"a cluster of {self.brokers} brokers"

    def folder(self, tests: str, project: str) -> Path:
        """The checkout of a project whose source archive leaves its tests out."""
        if self.checkout is None:
            raise Unavailable(f"no source archive has them; name a checkout of {project} with --checkout")
        if not (self.checkout / tests).is_dir():
            raise Unavailable(f"there is no {tests} in {self.checkout}")
        return self.checkout


class _Running(NamedTuple):
    bootstrap: str
    secured: Mapping[str, str] = {}
    """Where its other listeners are, as variables of the environment."""


_REPLICATED = {"default.replication.factor": 3}


@contextmanager
def _running(
    brokers: int, scratch: Path, settings: Mapping[str, object], users: Mapping[str, str]
) -> Iterator[_Running]:
    """One broker, or a cluster whose topics have three copies unless a test says otherwise."""
    if brokers == 1 and users:
        addresses = SecuredAddresses.choose(scratch / "certificates")
        secured = {**settings, **addresses.settings}
        with BrokerProcess(scratch / "data", port=addresses.plain, settings=secured) as broker:
            for name, password in {ADMIN: ADMIN, **users}.items():
                addresses.create_user(name, password)
            yield _Running(broker.bootstrap, addresses.environment)
    elif brokers == 1:
        with BrokerProcess(scratch / "data", settings=settings) as broker:
            yield _Running(broker.bootstrap)
    else:
        with ClusterProcesses(scratch, brokers=brokers, first_id=0, settings={**settings, **_REPLICATED}) as cluster:
            yield _Running(cluster.bootstrap)


def run(
    folder: Path,
    arguments: list[str],
    *,
    brokers: int = 1,
    settings: Mapping[str, object],
    environment: Callable[[str], Mapping[str, str]],
    expected_failures: Mapping[str, str],
    python: str = sys.executable,
    uncertain: Mapping[str, str] | None = None,
    users: Mapping[str, str] | None = None,
) -> int:
    """Run pytest in `folder` against brokers with `settings`; `environment` makes of the address what the suite reads.

    Prints a line for each test and a summary. Returns 1 if a test failed that is not expected to, passed that is
    expected to fail, or if none passed. Those that are `uncertain` may do either. With `users` a single broker has a
    listener for each way to connect, and ACLs; see `SecuredAddresses.from_environment`.
    """
    with (
        tempfile.TemporaryDirectory(prefix="headrace-suite-") as scratch,
        _running(brokers, Path(scratch), settings, users or {}) as running,
    ):
        report = Path(scratch) / "report.xml"
        # -P: the installed library is under test, not the sources beside its suite.
        command = [python, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"]
        command += ["-o", "addopts=", f"--timeout={_TEST_TIMEOUT_S}", "--log-level=ERROR", f"--junitxml={report}"]
        # Absolute, since the suite runs in another folder.
        inherited = [
            str(Path(entry).resolve()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry
        ]
        path = os.pathsep.join([str(Path(__file__).resolve().parent), *inherited])
        subprocess.run(
            [*command, *arguments],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": path} | running.secured | environment(running.bootstrap),
            check=False,
            stdout=subprocess.DEVNULL,
            timeout=_SUITE_TIMEOUT_S,
        )
        if not report.exists():
            print("pytest ended before it ran a test")
            return 1
        outcomes = [_read(case) for case in ElementTree.parse(report).iter("testcase")]
    return _tell(outcomes, expected_failures, uncertain or {})


def _read(case: ElementTree.Element) -> tuple[str, str, str]:
    name = case.get("name") or "?"
    for kind, outcome in (("skipped", "skipped"), ("failure", "failed"), ("error", "failed")):
        found = case.find(kind)
        if found is not None:
            return name, outcome, (found.get("message") or "no message").splitlines()[0]
    return name, "passed", ""


def _tell(
    outcomes: list[tuple[str, str, str]], expected_failures: Mapping[str, str], uncertain: Mapping[str, str]
) -> int:
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    surprises = 0
    for name, outcome, why in outcomes:
        test = name.partition("[")[0]
        expected = expected_failures.get(test)
        counts[outcome] += 1
        note = f": {expected or uncertain.get(test) or why}" if outcome != "passed" else ""
        if (outcome == "failed") != (expected is not None) and outcome != "skipped" and test not in uncertain:
            surprises += 1
            note = f": {why} (not expected)" if why else " (not expected)"
        print(f"  {outcome:7} {name}{note}")
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()) + f", {surprises} not as expected")
    return 1 if surprises or not counts["passed"] else 0
