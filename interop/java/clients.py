"""Kafka's Java clients, driven by `Clients.java` and `Transactions.java`."""

import re
import select
import subprocess

from apache import HERE, Java
from report import Report, expect

from headrace.testing.process import BrokerProcess

_SOURCE = HERE / "Clients.java"
_TRANSACTIONS = HERE / "Transactions.java"
_OK = re.compile(r"ok (\d+) (.+)")
_FAILED = re.compile(r"failed (.+?): (.+)")
_MORE_WITHIN_S = 60.0
_DONE_WITHIN_S = 120.0


def check_clients(report: Report, java: Java, bootstrap: str) -> None:
    for source in (_SOURCE, _TRANSACTIONS):
        ran = java.run(source, bootstrap)
        seen = _add(report, ran.out)
        if ran.code or not seen:
            report.add(f"{source.name} runs to its end", str(ran))


def check_restarts(report: Report, java: Java, broker: BrokerProcess) -> None:
    """A stop and a kill -9 under a producer that never pauses; each time it must get going again."""
    with _Producing(java.command(_SOURCE, broker.bootstrap, "restart")) as producing:
        for kill in (False, True):
            with report.check(f"a Java producer carries on after a {'kill -9' if kill else 'stop'} of the broker"):
                producing.wait_for_more()
                broker.restart(kill=kill)
                producing.wait_for_more()
        out = producing.end()
    if not _add(report, out):
        report.add("the Java producer ends well", f"it said {out!r}")


class _Producing:
    """The program while it produces, until `end`."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def wait_for_more(self) -> None:
        """Wait until it has had a few thousand more records acknowledged."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("more\n")
        self._process.stdin.flush()
        readable, _, _ = select.select([self._process.stdout], [], [], _MORE_WITHIN_S)
        line = self._process.stdout.readline() if readable else f"nothing in {_MORE_WITHIN_S:.0f} s"
        expect(line == "more\n", f"it said {line!r}")

    def end(self) -> str:
        """Tell it to end; what it says of its check."""
        return self._process.communicate("end\n", timeout=_DONE_WITHIN_S)[0]

    def __enter__(self) -> "_Producing":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _add(report: Report, out: str) -> int:
    """Add what the program said of its checks; how many there were."""
    count = 0
    for line in out.splitlines():
        if done := _OK.fullmatch(line):
            report.add(f"Java clients: {done[2]}", None, int(done[1]) / 1000)
        elif failed := _FAILED.fullmatch(line):
            report.add(f"Java clients: {failed[1]}", failed[2])
        count += line.startswith(("ok ", "failed "))
    return count
