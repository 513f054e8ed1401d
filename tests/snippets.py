"""The code in Markdown pages, and a shell and a Python that run it block by block.

The fence of a block says what it is, and an indented block is shell. A comment of HTML before a block, which readers do
not see, changes what is done with it:

    <!-- setup                      Python, run before the block: the names that the block takes for granted
    def deliver(mail): ...
    -->
    <!-- until: text -->            it runs until it has printed this, and is interrupted as by Ctrl-C
    <!-- asked: text; typed: y -->  it runs in a terminal, where this is typed after that question
    <!-- leave running: text -->    it runs in a terminal once it has printed this, while the next block is run
    <!-- needs: etcd -->            it is left out where there is neither such a program nor such a module
    <!-- pytest -->                 a file of tests, which pytest runs
    <!-- spark -->                  Python with a session `spark`: tests/pipelines/test_documents.py runs it
    <!-- cluster -->                commands to three brokers: tests/interop/test_cli_cluster_dev.py runs them
    <!-- settings -->               TOML for a broker; without it, TOML is a pipeline
    <!-- text -->                   not code at all: a drawing, or what a command prints

The Python blocks of a page share their names and may await at the top level; its shell blocks share a session. Both
run in the order of the page. In a shell block with prompts (`$ `) the other lines are what the command prints, with `…`
for what differs. A block that begins with the name of a file (`# revenue.toml`) is that file for the whole page.

`tests/not_run.py` has the blocks that are not run, each with the reason. `tests/docstrings.py` finds the blocks of
docstrings, which are run in the same way.
"""

import fnmatch
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from headrace.config.load import load_settings
from headrace.model.errors import SettingsError

from .not_run import NOT_RUN
from .terminal import Terminal

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(str(each.relative_to(ROOT)) for each in (ROOT / "docs").rglob("*.md"))]
_FENCES = {"python": "python", "sh": "shell", "toml": "pipeline", "text": "text"}
_KINDS = ("pytest", "spark", "cluster", "settings", "text")
_COMMENT = re.compile(r"<!-- ?(.*?) ?-->", re.DOTALL)
_TOP_LEVEL_AWAIT = 0x2000
_STEP_S = 120.0


class Block(NamedTuple):
    page: str
    line: int
    language: str
    text: str
    setup: str = ""
    reason: str = ""
    """Why it is not run; empty if it is."""
    until: str = ""
    asked: tuple[tuple[str, str], ...] = ()
    """Questions, and what is typed after each."""
    leave_running: str = ""

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str:
        """The file that this block is; empty if it does not say."""
        found = re.match(r"# (\S+\.(?:toml|py))\n", self.text)
        return found[1] if found else ""

    def check_syntax(self) -> None:
        if self.language in ("shell", "cluster"):
            script = "\n".join(each for each, _ in self.commands())
            done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{self.where}: {done.stderr}"
        else:
            compile(self.text, self.where, "exec", flags=_TOP_LEVEL_AWAIT)

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Each command with the lines that it prints; without prompts, all of it and nothing."""
        if not self.text.startswith("$ "):
            yield self.text, []
            return
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            lines = part.rstrip("\n").split("\n")
            end = next(number for number, line in enumerate(lines, start=1) if not line.endswith("\\"))
            yield "\n".join(lines[:end]), [line for line in lines[end:] if line]


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    reasons = NOT_RUN.get(page, {})
    return [
        block._replace(reason=block.reason or reasons.get(block.text.partition("\n")[0], ""))
        for block in collect(page, (ROOT / page).read_text())
    ]


def collect(page: str, text: str) -> Iterator[Block]:
    """The blocks of a page with this text."""
    lines = text.splitlines()
    number, comments = 0, ""
    while number < len(lines):
        line = lines[number]
        start = number
        if line.lstrip().startswith(("```", "~~~")):
            while not lines[(number := number + 1)].lstrip().startswith(line.lstrip()[:3]):
                pass
            name = line.strip()[3:]
            assert name in _FENCES, f"{page}:{start + 1}: {name or 'no language'} is not one of {', '.join(_FENCES)}"
            language = _FENCES[name]
            found = textwrap.dedent("\n".join(lines[start + 1 : number]) + "\n")
            start += 1
        elif line.lstrip().startswith("<!--"):
            while "-->" not in lines[number]:
                number += 1
            comments += "\n".join(lines[start : number + 1]) + "\n"
            number += 1
            continue
        elif line.startswith(("    ", "\t")) and (not start or not lines[start - 1].strip()):
            while number + 1 < len(lines) and lines[number + 1].startswith(("    ", "\t")):
                number += 1
            found = textwrap.dedent("\n".join(lines[start : number + 1]) + "\n")
            language = "shell"
        else:
            comments = comments if not line.strip() else ""
            number += 1
            continue
        yield _annotated(Block(page, start + 1, language, found), comments)
        comments = ""
        number += 1


def _annotated(block: Block, comments: str) -> Block:
    for comment in _COMMENT.findall(comments):
        if comment.startswith("setup\n"):
            block = block._replace(setup=block.setup + comment.removeprefix("setup\n").rstrip() + "\n")
        elif comment.startswith("until: "):
            block = block._replace(until=comment.removeprefix("until: "))
        elif found := re.fullmatch(r"asked: (.+); typed: (.+)", comment):
            block = block._replace(asked=(*block.asked, (found[1], found[2])))
        elif comment.startswith("leave running: "):
            block = block._replace(leave_running=comment.removeprefix("leave running: "))
        elif comment.startswith("needs: "):
            name = comment.removeprefix("needs: ")
            is_there = shutil.which(name) is not None or find_spec(name) is not None
            block = block._replace(reason="" if is_there else f"there is no {name}")
        elif comment in _KINDS:
            block = block._replace(language=comment)
        else:
            raise AssertionError(f"{block.where}: a comment that is not understood: {comment}")
    return block


class _Session:
    """A program that does what it reads from stdin, and ends each answer with a line of `_END` and a code."""

    def __init__(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def ask(self, request: str, where: str, until: str = "") -> str:
        """What it prints; fails where the code is not 0. It is interrupted once it has printed `until`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(request.encode())
        self._process.stdin.flush()
        printed, deadline_s = b"", time.monotonic() + _STEP_S
        while (end := _END.search(printed)) is None:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline_s - time.monotonic()))
            assert ready, f"{where} is not done after {_STEP_S:.0f} s, and printed: {printed.decode()}"
            data = os.read(self._process.stdout.fileno(), 65_536)
            assert data, f"{where} ended the session, and printed: {printed.decode()}"
            printed += data
            if until and until in printed.decode(errors="replace"):
                self._process.send_signal(signal.SIGINT)
                until = ""
        text = printed[: end.start()].decode()
        assert not until, f"{where} did not print {until}, but: {text}"
        assert end[1] == b"0", f"{where} failed with {end[1].decode()}, and printed: {text}"
        return text

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


_END = re.compile(rb"\x1e(\d+)\n")
_PYTHON = """
import ast, asyncio, inspect, json, signal, sys, traceback
names = {"__name__": "__main__"}
is_interrupted = False
def interrupt(*_):
    global is_interrupted
    is_interrupted = True
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupt)
def end(code):
    # In one write: what a thread logs meanwhile must not come between the code and the end of its line.
    sys.stdout.write(f"\\x1e{code}\\n")
    sys.stdout.flush()
for line in sys.stdin:
    code, where, line_number, is_endless = json.loads(line)
    is_interrupted = False
    try:
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        done = eval(compile("\\n" * (line_number - 1) + code, where, "exec", flags=flags), names)
        if inspect.iscoroutine(done):
            asyncio.run(done)
    except BaseException:
        # Within a call of librdkafka an interrupt comes out as another error.
        if is_endless and is_interrupted:
            end(0)
            continue
        traceback.print_exc(file=sys.stdout)
        end(1)
    else:
        end(0)
"""


_HEADRACE = f'headrace() {{ "{sys.executable}" -m headrace "$@"; }}; export PATH="{Path(sys.executable).parent}:$PATH"'
_SERVER = {
    "HEADRACE_DATA_DIR": "another-data",
    "HEADRACE_KAFKA_LISTEN": "127.0.0.1:0",
    "HEADRACE_HTTP_LISTEN": "127.0.0.1:0",
}
"""The settings of a broker that a page starts where it does not say: it runs beside others."""


class Runner:
    """Runs the blocks of one page in `folder`, with `addresses` in place of those that the page names."""

    def __init__(self, folder: Path, addresses: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._addresses = addresses
        self._environment = environment
        self._python: _Session | None = None
        self._shell: _Session | None = None
        self._left_running: tuple[Terminal, str] | None = None
        self._files_of_tests = 0

    def write_file(self, block: Block) -> None:
        """Makes the file that a block is."""
        (self._folder / self._local(block.file)).write_text(self._local(block.text))

    def run(self, block: Block) -> str:
        """What it prints, checked where the page says what that is."""
        if block.setup:
            self._exec(block.setup, block)
        if block.leave_running:
            assert self._left_running is None, f"{block.where}: another block is left running already"
            self._left_running = (self._type(block), block.until)
            return ""
        printed = self._printed_by(block)
        if self._left_running is not None:
            beside, until = self._left_running
            beside.wait_for(until)
            beside.interrupt()
            beside.finish()
            beside.close()
            self._left_running = None
        return printed

    def _printed_by(self, block: Block) -> str:
        match block.language:
            case "shell" if block.until or block.asked:
                return self._in_terminal(block)
            case "shell":
                return "".join(self._command(command, expected, block) for command, expected in block.commands())
            case "pytest":
                return self._test(block)
            case "settings":
                return self._settings(block)
            case "pipeline":
                return self._pipeline(block)
            case "python":
                return self._exec(block.text, block, block.until)
            case other:
                raise AssertionError(f"{block.where}: {other} is not run here")

    def _type(self, block: Block) -> Terminal:
        script = "\n".join([_HEADRACE, *(self._local(command) for command, _ in block.commands())])
        environment = {**self._environment, **_SERVER}
        terminal = Terminal(script, block.where, self._folder, environment, _STEP_S)
        try:
            end = 0
            for question, answer in block.asked:
                end = terminal.wait_for(question, end)
                terminal.type(answer)
            terminal.wait_for(block.leave_running or block.until)
        except BaseException:
            terminal.close()
            raise
        return terminal

    def _in_terminal(self, block: Block) -> str:
        terminal = self._type(block)
        try:
            if block.until:
                terminal.interrupt()
            return terminal.finish()
        finally:
            terminal.close()

    def _settings(self, block: Block) -> str:
        file = self._folder / "settings.toml"
        file.write_text(block.text)
        try:
            return str(load_settings(config_file=file))
        except SettingsError as error:
            raise AssertionError(f"{block.where}: {error}") from None

    def _pipeline(self, block: Block) -> str:
        tables = tomllib.loads(block.text)
        added = "" if "source" in tables else '[source]\ntopic = "orders"\nformat = "raw"\n'
        file = self._folder / "validated.toml"
        file.write_text(self._local(block.text) + added)
        check = "from headrace.pipelines.spec.file import SpecFile; from pathlib import Path; SpecFile(Path({!r}))"
        return self._exec(check.format(str(file)), block)

    def _exec(self, code: str, block: Block, until: str = "") -> str:
        if self._python is None:
            self._python = _Session([sys.executable, "-u", "-c", _PYTHON], self._folder, self._environment)
        request = json.dumps([self._local(code), block.page, block.line, bool(until)])
        return self._python.ask(f"{request}\n", block.where, until)

    def _command(self, command: str, expected: list[str], block: Block) -> str:
        if self._shell is None:
            self._shell = _Session(["bash"], self._folder, self._environment)
            self._shell.ask(f'{_HEADRACE}; printf "\\0360\\n"\n', "bash")
        script = f"( set -e\n{self._local(command)}\n) </dev/null 2>&1; printf '\\036%d\\n' $?\n"
        printed = self._shell.ask(script, f"{block.where}: {command}")
        for line in expected:
            pattern = line.replace("[", "[[]").replace("…", "*")
            assert fnmatch.filter(printed.splitlines(), pattern), (block.where, command, line, printed)
        return printed

    def _test(self, block: Block) -> str:
        self._files_of_tests += 1
        file = self._folder / f"test_snippet_{self._files_of_tests}.py"
        file.write_text(self._local(block.text))
        options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(self._folder)]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, file.name],
            cwd=self._folder,
            env={**os.environ, **self._environment},
            capture_output=True,
            text=True,
            timeout=_STEP_S,
            check=False,
        )
        no_tests = 5
        assert done.returncode in (0, no_tests), f"{block.where}: {done.stdout}"
        return done.stdout

    def _local(self, text: str) -> str:
        for address, local in self._addresses.items():
            text = text.replace(address, local)
        return text

    def close(self) -> None:
        if self._left_running is not None:
            self._left_running[0].close()
        for session in (self._python, self._shell):
            if session is not None:
                session.close()


@contextmanager
def runner(folder: Path, addresses: Mapping[str, str], environment: Mapping[str, str]) -> Iterator[Runner]:
    made = Runner(folder, addresses, environment)
    try:
        yield made
    finally:
        made.close()
