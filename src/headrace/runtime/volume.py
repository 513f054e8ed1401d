"""The volume a directory is on."""

import os
from pathlib import Path
from typing import NamedTuple


class VolumeSize(NamedTuple):
    total_bytes: int
    usable_bytes: int
    """What is left for a process without special rights."""


def volume_size(path: Path) -> VolumeSize:
    stat = os.statvfs(path)
    return VolumeSize(stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)
