"""What the README and the quickstart tell a newcomer to type does what they say."""

import fnmatch
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.process import BrokerProcess

# Many programs are started, one after the other: on a busy machine each takes seconds.
pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).parents[2]
SHELL = f'headrace() {{ "{sys.executable}" -m headrace "$@"; }}\n'


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as running:
        yield running


def shell(command: str, broker: BrokerProcess) -> list[str]:
    """The lines that a command prints, on stdout and stderr."""
    result = subprocess.run(
        ["bash", "-c", SHELL + command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        env={**os.environ, "HEADRACE_BOOTSTRAP": broker.bootstrap},
        check=False,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout.splitlines()


def sections(page: str) -> dict[str, str]:
    _, *rest = re.split(r"^## (.+)$", (ROOT / page).read_text(), flags=re.MULTILINE)
    return dict(zip(rest[::2], rest[1::2], strict=True))


def test_the_tour_of_the_readme(broker):
    blocks = re.findall(r"(?:^    \S.*\n)+", sections("README.md")["Five minutes"], flags=re.MULTILINE)
    told = [[line[4:] for line in block.splitlines()] for block in blocks]
    tried = 0
    for lines in told:
        for at, line in enumerate(lines):
            if not line.startswith("$ ") or line.startswith(("$ . ", "$ headrace bench", "$ headrace doctor")):
                continue
            following = lines[at + 1 :]
            end = next((n for n, later in enumerate(following) if later.startswith("$ ")), len(following))
            printed = shell(line[2:], broker)
            for expected in following[:end]:
                pattern = expected.replace("[", "[[]").replace("…", "*")
                assert fnmatch.filter(printed, pattern), (line, expected, printed)
            tried += 1
    assert tried >= 4


def test_the_shell_of_the_quickstart(broker):
    parts = sections("docs/quickstart.md")
    for name in ("Topics", "Messages"):
        for block in re.findall(r"(?:^    \S.*\n)+", parts[name], flags=re.MULTILINE):
            command = "\n".join(line[4:] for line in block.splitlines())
            if command != "headrace consume orders --format json":  # that one waits for Ctrl-C
                printed = shell(command, broker)
    assert printed[-1].startswith("Sent 1 message ")


def test_the_python_of_the_quickstart(broker):
    shell("headrace topic create orders --partitions 3; seq 9 | headrace produce orders", broker)
    (code,) = re.findall(r"```python\n(.+?)```", sections("docs/quickstart.md")["From Python"], flags=re.DOTALL)
    result = subprocess.run(
        # It waits for the last of ten messages, on a slow machine too.
        [sys.executable, "-c", code.replace("localhost:9092", broker.bootstrap).replace("timeout=10", "timeout=100")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "b'dave' b'water'" in result.stdout
    (commands,) = re.findall(
        r"(?:^    \S.*\n)+", sections("docs/quickstart.md")["How far a group is"], flags=re.MULTILINE
    )
    printed = "\n".join(shell("\n".join(line[4:] for line in commands.splitlines()), broker))
    assert "kitchen" in printed
    assert "Nothing was changed" in printed


def test_the_share_group_of_the_page_on_queues(broker):
    """On a topic that has messages already, as a reader of the page has it."""
    shell("headrace topic create orders --partitions 3; seq 9 | headrace produce orders", broker)
    page = sections("docs/queues.md")["Share groups"]
    (command,) = re.findall(r"^    (headrace .+)$", page, flags=re.MULTILINE)
    shell(command, broker)
    (code,) = re.findall(r"```python\n(.+?)```", page, flags=re.DOTALL)
    result = subprocess.run(
        [sys.executable, "-c", code.replace("localhost:9092", broker.bootstrap)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert sorted(result.stdout.splitlines()) == [f"b'{number}' 1" for number in range(1, 10)], result.stderr


def test_the_sdk_of_the_quickstart(broker):
    (code,) = re.findall(r"```python\n(.+?)```", sections("docs/quickstart.md")["With the SDK"], flags=re.DOTALL)
    command = [sys.executable, "-u", "-c", code.replace("localhost:9092", broker.bootstrap)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == """b'dave' {"item":"water"}\n"""
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
