"""The size of the volume that a directory is on."""

import os
from pathlib import Path
from typing import NamedTuple


class VolumeSize(NamedTuple):
    total_bytes: int
    usable_bytes: int
    """Free space for an unprivileged process."""


def volume_size(path: Path) -> VolumeSize:
    stat = os.statvfs(path)
    return VolumeSize(stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)
