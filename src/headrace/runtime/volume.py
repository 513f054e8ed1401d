"""The size of the volume that a directory is on."""

import os
import tempfile
from pathlib import Path
from typing import NamedTuple


class VolumeSize(NamedTuple):
    total_bytes: int
    usable_bytes: int
    """Free space for an unprivileged process."""


def volume_size(path: Path) -> VolumeSize:
    stat = os.statvfs(path)
    return VolumeSize(stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)


_TRIAL_BYTES = bytes(4096)


def why_not_writable(folder: Path) -> str:
    """Why a file in this folder cannot be written, by trying; empty if it can. Nothing is left behind. Blocking."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            file.write(_TRIAL_BYTES)
    except OSError as error:
        return error.strerror or str(error)
    return ""
