"""Run the suite of a client library against a real `headrace serve` process, and compare with what is expected."""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from pathlib import Path

from headrace.testing.process import BrokerProcess

_SUITE_TIMEOUT_S = 1500
_TEST_TIMEOUT_S = 90


class Unavailable(Exception):
    """The suite cannot be had; the message says why."""


def checkout(arguments: list[str], folder: str, project: str) -> tuple[Path, list[str]]:
    """The path after `--checkout`, where `folder` has to be, and the other arguments.

    For suites that the source archives of their projects leave out.
    """
    if arguments[:1] != ["--checkout"] or len(arguments) < 2:
        raise Unavailable(f"no source archive has them; name a checkout of {project} with --checkout")
    found = Path(arguments[1]).resolve()
    if not (found / folder).is_dir():
        raise Unavailable(f"there is no {folder} in {found}")
    return found, arguments[2:]


def run(
    folder: Path,
    arguments: list[str],
    *,
    settings: Mapping[str, object],
    environment: Callable[[str], Mapping[str, str]],
    expected_failures: Mapping[str, str],
    python: str = sys.executable,
) -> int:
    """Run pytest in `folder` against a broker with `settings`; `environment` makes of its address what the suite reads.

    Prints a line for each test and a summary. Returns 1 if a test failed that is not expected to, passed that is
    expected to fail, or if none passed.
    """
    with (
        tempfile.TemporaryDirectory(prefix="headrace-suite-") as scratch,
        BrokerProcess(Path(scratch) / "data", settings=settings) as broker,
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
            env=os.environ | {"PYTHONPATH": path} | environment(broker.bootstrap),
            check=False,
            stdout=subprocess.DEVNULL,
            timeout=_SUITE_TIMEOUT_S,
        )
        if not report.exists():
            print("pytest ended before it ran a test")
            return 1
        outcomes = [_read(case) for case in ElementTree.parse(report).iter("testcase")]
    return _tell(outcomes, expected_failures)


def _read(case: ElementTree.Element) -> tuple[str, str, str]:
    name = case.get("name") or "?"
    for kind, outcome in (("skipped", "skipped"), ("failure", "failed"), ("error", "failed")):
        found = case.find(kind)
        if found is not None:
            return name, outcome, (found.get("message") or "no message").splitlines()[0]
    return name, "passed", ""


def _tell(outcomes: list[tuple[str, str, str]], expected_failures: Mapping[str, str]) -> int:
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    surprises = 0
    for name, outcome, why in outcomes:
        expected = expected_failures.get(name.partition("[")[0])
        counts[outcome] += 1
        note = f": {expected or why}" if outcome != "passed" else ""
        if (outcome == "failed") != (expected is not None) and outcome != "skipped":
            surprises += 1
            note = f": {why} (not expected)" if why else " (not expected)"
        print(f"  {outcome:7} {name}{note}")
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()) + f", {surprises} not as expected")
    return 1 if surprises or not counts["passed"] else 0
