"""Reads what `pip install` prints: how far it is, and why it failed. Pure: it runs nothing and touches no file."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_UNITS_MB = {"bytes": 1e-6, "kB": 1e-3, "MB": 1.0, "GB": 1e3}
_FETCHED = re.compile(
    r"\s*(?P<how>Downloading|Using cached) (?P<file>\S+) \((?P<size>[\d.]+) (?P<unit>bytes|kB|MB|GB)\)"
)
_COLLECTING = re.compile(r"Collecting ([\w.-]+)")
_BUILDING = re.compile(r"\s*Building (?:wheel|editable) for ([\w.-]+) .*: started")
_BUILD_TOOLS = re.compile(r"\s*Installing (?:build|backend) dependencies: started")
_INSTALLING = re.compile(r"Installing collected packages: (.+)")
_RETRYING = re.compile(r"WARNING: Retrying ")


@dataclass
class PipProgress:
    """How far a `pip install` is, from the lines that it has printed so far."""

    phase: str = "Looking up packages"
    package: str = ""
    file: str = ""
    """The file that is being downloaded, empty when none is."""
    file_mb: float = 0.0
    fetched_mb: float = 0.0
    """The size of the files that are complete."""
    to_install: list[str] = field(default_factory=list)

    def feed(self, line: str) -> None:
        """Take in one line. Lines that say nothing new are ignored, so that another pip's wording does no harm."""
        if match := _FETCHED.match(line):
            self._complete()
            self.phase, self.file_mb = "Downloading", float(match["size"]) * _UNITS_MB[match["unit"]]
            self.file = match["file"].rsplit("/", 1)[-1]
            self.package = self.file.split("-", 1)[0]
        elif match := _COLLECTING.match(line):
            self._complete()
            self.phase, self.package = "Looking up", match[1]
        elif match := _BUILDING.match(line):
            self._complete()
            self.phase, self.package = "Building", match[1]
        elif _BUILD_TOOLS.match(line):
            self._complete()
            self.phase = "Getting build tools for"
            self.package = self.package or "headrace"
        elif match := _INSTALLING.match(line):
            self._complete()
            self.phase, self.to_install = "Installing", [name.strip() for name in match[1].split(",")]
        elif _RETRYING.match(line):
            self.phase = "Trying to reach the package index again for"

    def _complete(self) -> None:
        self.fetched_mb += self.file_mb
        self.file, self.file_mb = "", 0.0


_OTHER_PYTHON = (
    "Headrace is tried with CPython 3.11 to 3.13 on Linux; name another Python with: make run PYTHON=python3.12."
)


@dataclass(frozen=True)
class _Trouble:
    pattern: str
    advice: str


_TROUBLES = (
    _Trouble(
        r"No space left on device|Disk quota exceeded|Errno 28|Errno 122",
        "The disk is full. Free some space, or put the virtual environment on another disk with VENV=/path/to/venv.",
    ),
    _Trouble(
        r"CERTIFICATE_VERIFY_FAILED|SSLError|SSLCertVerificationError",
        "The package index showed a certificate that this machine does not trust. If your network has a certificate "
        "authority of its own, name its file in PIP_CERT.",
    ),
    _Trouble(
        r"NewConnectionError|ConnectTimeoutError|ReadTimeoutError|ProxyError|NameResolutionError|Connection refused|"
        r"Temporary failure in name resolution|Network is unreachable|ConnectionResetError|Connection broken|"
        r"ProtocolError|Could not fetch URL|HTTP error 5\d\d|HTTP error 40[137]",
        "The package index cannot be reached. Check the network and its proxy (HTTPS_PROXY); if packages come from "
        "an index of your own, name it in PIP_INDEX_URL or pip.conf.",
    ),
    _Trouble(
        r"Permission denied|Errno 13",
        "A file may not be written. The folder, or .venv in it, may belong to another user.",
    ),
    _Trouble(
        r"Failed building wheel for|Could not build wheels|Failed to build|gcc.* failed|metadata-generation-failed",
        f"A package has no ready-made build for this Python and machine, and could not be built here. {_OTHER_PYTHON}",
    ),
    _Trouble(
        r"No matching distribution found|ResolutionImpossible|Could not find a version",
        "The package index does not have a version that constraints.txt asks for, or not for this Python. "
        + _OTHER_PYTHON,
    ),
)


def explain_failure(lines: Sequence[str], exit_code: int) -> str:
    """What went wrong and what to do about it, in sentences, from what pip has printed and how it ended."""
    if exit_code == -9:
        return "pip was killed, most likely because the machine ran out of memory. About 1 GB must be free."
    text = "\n".join(lines)
    return next((each.advice for each in _TROUBLES if re.search(each.pattern, text)), "pip failed.")
