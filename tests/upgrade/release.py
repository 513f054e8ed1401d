"""The data sets under `tests/data/<version>/`: finding, unpacking and packing them, and how a broker opens them.

A data set is `<name>.tar.xz` with what it holds in `<name>.json`. It is opened at any later date, so nothing in it may
expire; `OPENING` are the settings that a broker needs for that.
"""

import json
import lzma
import shutil
import struct
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from tests.earlier_versions import DATA

_CLOCK_SOURCE = Path(__file__).parents[1] / "faults" / "clock.c"
DAY_S = 86_400
_NEVER_MS = 2**31 - 1

OPENING: dict[str, object] = {
    "offsets.retention.minutes": 2**31 - 1,
    "offsets.retention.check.interval.ms": _NEVER_MS,
    "transactional.id.expiration.ms": _NEVER_MS,
    "transaction.remove.expired.transaction.cleanup.interval.ms": _NEVER_MS,
    "log.retention.check.interval.ms": _NEVER_MS,
    "log.cleaner.backoff.ms": 100,
    "group.consumer.max.session.timeout.ms": 1_800_000,
    "group.share.max.session.timeout.ms": 1_800_000,
    "group.initial.rebalance.delay.ms": 0,
}


def versions() -> list[str]:
    """The versions of which there are data sets."""
    return sorted(folder.name for folder in DATA.iterdir() if any(folder.glob("*.tar.xz")))


def unpack(version: str, name: str, folder: Path) -> dict[str, Any]:
    """Unpack a data set into a folder; what it holds."""
    with tarfile.open(DATA / version / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    expected: dict[str, Any] = json.loads((DATA / version / f"{name}.json").read_text())
    return expected


def pack(source: Path, target: Path) -> None:
    """Pack what is in a folder, in the order of names and without its owners. Locks are left out."""
    with (
        lzma.open(target, "wb", preset=9 | lzma.PRESET_EXTREME) as packed,
        tarfile.open(fileobj=packed, mode="w") as to,
    ):
        for path in sorted(source.rglob("*")):
            if path.name not in (".lock", "lock", "run.lock"):
                to.add(path, path.relative_to(source).as_posix(), recursive=False, filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = int(entry.mtime)
    return entry


def clock_ahead(folder: Path, ahead_s: int) -> dict[str, str]:
    """The environment of a process whose clock on the wall is so far ahead of ours."""
    compiler = shutil.which("cc")
    assert compiler is not None, "moving the clock needs a C compiler"
    library, file = folder / "clock.so", folder / "clock"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, _CLOCK_SOURCE, "-ldl"], check=True, timeout=60)
    file.write_bytes(struct.pack("q", ahead_s))
    return {"LD_PRELOAD": str(library), "TEST_CLOCK_FILE": str(file)}
