"""Installs the Debian packages that are missing, if it may: `python -m tools.packages COMMAND=PACKAGE …`."""

import glob
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.progress import Progress
from tools.runner import run


def can_install() -> bool:
    """True as root on a machine with apt-get."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def missing_packages(needs: Sequence[str]) -> list[str]:
    """The packages whose command is not there, from COMMAND=PACKAGE. A command may be a pattern of paths."""
    pairs = [need.split("=", 1) for need in needs]
    return [package for command, package in pairs if not (shutil.which(command) or glob.glob(command))]


def install_packages(packages: Sequence[str], why: str, progress: Progress) -> bool:
    """Install the packages. False if apt-get fails, also with package lists that are new; its last lines are shown."""
    progress.say(f"Installing {' '.join(packages)} with apt-get, {why}.")
    lines: list[str] = []
    phase = "Getting"

    def follow(line: str) -> None:
        nonlocal phase
        lines.append(line)
        if line.startswith(("Unpacking ", "Setting up ")):
            phase = "Unpacking" if line.startswith("U") else "Setting up"
            progress.show(f"{phase} Debian packages", line.removeprefix(phase).split()[0])

    def tick() -> None:
        progress.show(f"{phase} Debian packages")

    install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    with tempfile.TemporaryFile("w+") as log:
        for command in (install, ["apt-get", "update"], install):
            done = run(command, log, Path.cwd(), environment, follow, tick) == 0
            if done and command is install:
                progress.clear()
                return True
    progress.say("apt-get failed:\n" + "\n".join(f"    {line}" for line in lines[-8:]))
    return False


def main(needs: Sequence[str]) -> int:
    missing = missing_packages(needs)
    progress = Progress()
    if not missing:
        return 0
    if not can_install():
        progress.say(f"Some tests are skipped for want of Debian packages: sudo apt-get install {' '.join(missing)}")
        return 0
    if not install_packages(missing, "which tests need", progress):
        return 1
    progress.say(f"Installed {len(missing)} Debian packages and what they need in {progress.elapsed_s:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
