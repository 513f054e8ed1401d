"""Makes the virtual environment that everything else in the Makefile runs in: `python -m tools.install`.

It runs pip and shows how far it is. The versions are those of constraints.txt, for the packages and, just as much, for
what they are built with. Where packages come from is left to pip's own settings (PIP_* and pip.conf). When everything
is there already, it says nothing and takes a tenth of a second.
"""

import argparse
import fcntl
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from tools.packages import can_install, install_packages
from tools.pip_output import PipProgress, explain_failure
from tools.progress import Progress, format_size
from tools.runner import run
from tools.stamp import Plan, Stamp, decide, has_stamp, hash_inputs, read_stamp

ROOT = Path(__file__).resolve().parents[1]

DOWNLOAD_MB = {"": 24, "archive": 90, "cluster": 8, "otel": 1, "spark": 560, "dev": 211, "site": 35}
"""About how much is downloaded, for the broker alone and in addition for each extra."""

DISK_MB = {"": 116, "archive": 320, "cluster": 20, "otel": 2, "spark": 890, "dev": 725, "site": 150}
"""About how much disk that takes when it is installed."""

BUILD_MB = {"spark": 1600}
"""Disk that is needed in addition while packages are unpacked and built. PySpark comes as source code."""

IMPORTED = {
    "": "headrace.cli.main,headrace.cli.serve.commands,headrace.app.broker",
    "cluster": "aetcd",
    "spark": "pandas,pyarrow,pyspark.sql,headrace.cli.demo.run",
}

_LOCK_WAIT_S = 900.0
_SHOWN_LINES = 12


class InstallError(Exception):
    """The install cannot go on. The message says why, and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.install", description="Make or repair .venv.")
    parser.add_argument("--venv", type=Path, default=Path(".venv"))
    parser.add_argument("--extras", default="", help="of pyproject.toml, separated by commas")
    parser.add_argument("--this-python", action="store_true", help="make it anew if it has another interpreter")
    options = parser.parse_args(arguments)
    extras = tuple(sorted({*options.extras.replace(" ", "").split(",")} - {""}))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    progress = Progress()
    try:
        with _only_install(progress):
            install(options.venv.absolute(), extras, options.this_python, progress)
    except InstallError as error:
        progress.say(f"\n{error}")
        return 1
    except KeyboardInterrupt:
        progress.say("\nStopped. The next run starts the install over.")
        return 130
    return 0


def install(venv: Path, extras: tuple[str, ...], this_python: bool, progress: Progress) -> None:
    """Bring the environment to what is wanted; do nothing if it is there."""
    unknown = set(extras) - (DISK_MB.keys() - {""})
    if unknown:
        known = ", ".join(sorted(filter(None, DISK_MB)))
        raise InstallError(f"There is no extra {', '.join(sorted(unknown))}: EXTRAS may have {known}.")
    interpreter = os.path.realpath(sys.executable)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    wanted = Stamp(extras, hash_inputs(ROOT), version, interpreter, str(venv), str(ROOT))
    exists = venv.is_dir() and any(venv.iterdir())
    if exists and not has_stamp(venv) and not (venv / "pyvenv.cfg").exists():
        raise InstallError(f"{venv} is a folder that is not a virtual environment. Name another with VENV=…")
    plan = decide(read_stamp(venv), wanted, _version_of(venv), exists, this_python)
    if plan.stamp is not None:
        _carry_out(plan, plan.stamp, venv, progress)


def _carry_out(plan: Plan, stamp: Stamp, venv: Path, progress: Progress) -> None:
    name = _short(venv)
    if plan.reason:
        progress.say(f"Making {name} anew: {plan.reason}.")
    if plan.remake and venv.is_dir():
        progress.show(f"Removing the old {name}")
        _empty(venv)
    venv.mkdir(parents=True, exist_ok=True)
    _announce(stamp, venv, plan.remake, progress)
    replace(stamp, finished=False).write(venv)
    with (venv / "install.log").open("w") as log, _temporary_folder(venv) as temporary:
        if plan.remake:
            _make_venv(venv, log, progress)
        _run_pip(stamp, venv, temporary, plan.remake, log, progress)
        _check_imports(stamp, venv, log, progress)
    stamp.write(venv)
    count = len([*_site_packages(venv).glob("*.dist-info")])
    size = format_size(_size_mb(venv))
    progress.say(f"Installed: {count} packages, {size} in {name}, in {progress.elapsed_s:.0f} s.")


def _announce(stamp: Stamp, venv: Path, fresh: bool, progress: Progress) -> None:
    """Say once what is to come, and stop here if there is no room for it."""
    name = _short(venv)
    with_extras = f" with {', '.join(stamp.extras)}" if stamp.extras else ""
    if not fresh:
        progress.say(f"Bringing {name} up to date: Headrace{with_extras}.")
        return
    parts = ("", *stamp.extras)
    disk_mb = sum(DISK_MB[part] for part in parts)
    download = format_size(sum(DOWNLOAD_MB[part] for part in parts))
    progress.say(
        f"Installing Headrace{with_extras} into {name}: about {download} to download, {format_size(disk_mb)} on disk."
    )
    peak_mb = disk_mb + sum(BUILD_MB.get(part, 0) for part in parts)
    free_mb = shutil.disk_usage(venv).free / 1e6
    if free_mb < peak_mb:
        less = "; without Spark it is far less: make run EXTRAS=" if "spark" in stamp.extras else ""
        raise InstallError(
            f"The disk of {venv} has {format_size(free_mb)} free, and installing takes {format_size(peak_mb)} for a "
            f"while. Free some, or name a folder on another disk with VENV=…{less}"
        )


def _make_venv(venv: Path, log: TextIO, progress: Progress) -> None:
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        _get_venv_module(progress)
    phase = f"Making {_short(venv)}"
    progress.show(phase)
    command = [sys.executable, "-m", "venv", str(venv)]
    if run(command, log, ROOT, on_tick=lambda: progress.show(phase)) != 0:
        raise InstallError(f"{sys.executable} could not make a virtual environment.\n{_last_lines(log)}")


def _get_venv_module(progress: Progress) -> None:
    """Debian has a part of Python in a package of its own."""
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    if can_install() and install_packages([package], "since this Python cannot make virtual environments", progress):
        return
    raise InstallError(
        f"{sys.executable} cannot make virtual environments. On Debian and Ubuntu: sudo apt-get install {package}"
    )


def _run_pip(stamp: Stamp, venv: Path, temporary: Path, fresh: bool, log: TextIO, progress: Progress) -> None:
    extras = f"[{','.join(stamp.extras)}]" if stamp.extras else ""
    options = ["--no-compile", "--progress-bar=off"]
    command = [_python(venv), "-m", "pip", "install", *options, "--editable", f".{extras}"]
    seen = PipProgress()
    lines: list[str] = []
    total_mb = sum(DOWNLOAD_MB[part] for part in ("", *stamp.extras)) if fresh else 0

    def follow(line: str) -> None:
        lines.append(line)
        seen.feed(line)
        show()

    def show() -> None:
        progress.show(*_describe(seen, temporary, venv, total_mb))

    code = run(command, log, ROOT, _pip_environment(temporary), follow, show)
    if code != 0:
        raise InstallError(f"{_last_lines(log)}\n{explain_failure(lines, code)} The whole log: {log.name}")


def _check_imports(stamp: Stamp, venv: Path, log: TextIO, progress: Progress) -> None:
    """Import what a broker and a pipeline import: it must work, and is compiled by that for all later starts.

    Compiling every file of every package, as pip would, takes several times as long.
    """
    modules = ",".join(IMPORTED[part] for part in ("", *stamp.extras) if part in IMPORTED)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    phase = "Compiling what a broker imports"
    progress.show(phase)
    command = [_python(venv), "-c", f"import {modules}"]
    if run(command, log, ROOT, environment, on_tick=lambda: progress.show(phase)) != 0:
        raise InstallError(f"{_last_lines(log)}\nWhat was installed does not run. The whole log: {log.name}")


def _describe(seen: PipProgress, temporary: Path, venv: Path, total_mb: float) -> tuple[str, str]:
    """The phase of the install, and how far it is."""
    if seen.to_install:
        done = {_normal(path.name.split("-")[0]) for path in _site_packages(venv).glob("*.dist-info")}
        left = [name for name in seen.to_install if _normal(name) not in done]
        count = f"{len(seen.to_install) - len(left)} of {len(seen.to_install)}"
        return f"Installing {len(seen.to_install)} packages", f"{count}, {f'now {left[0]}' if left else 'cleaning up'}"
    if seen.phase == "Building":
        return seen.phase, seen.package
    now_mb = seen.fetched_mb
    what = f"{seen.phase.lower()} {seen.package}".strip()
    if seen.file:
        # pip downloads into a folder that it makes in the temporary one, under the file's own name.
        file_mb = max(map(_bytes_of, temporary.glob(f"*/{seen.file}")), default=0) / 1e6
        now_mb += file_mb
        what = f"{seen.package} ({format_size(seen.file_mb)})" if seen.file_mb >= 1 else seen.package
        if file_mb >= 0.99 * seen.file_mb:
            what = f"unpacking {what}"
    of = f" of about {format_size(total_mb)}" if total_mb > now_mb else ""
    return "Downloading", f"{what}, {format_size(now_mb)}{of}"


def _pip_environment(temporary: Path) -> dict[str, str]:
    """The user's, with the versions of constraints.txt also for what packages are built with.

    pip gives the variables on to the installs that it makes for builds: it heeds the first of them up to 25.2, and the
    second from 25.3 on. The path is relative to the folder that pip runs in, for pip splits the value at spaces.
    """
    environment = os.environ | {
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_USER": "0",
        "PIP_NO_INPUT": "1",
        "PYTHONUNBUFFERED": "1",
        "LC_ALL": "C.UTF-8",
    }
    for name in ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"):
        environment[name] = f"{environment.get(name, '')} constraints.txt".strip()
    environment["TMPDIR"] = str(temporary)
    environment.pop("PYTHONHOME", None)
    # setuptools reads this file. PySpark's wheel is unpacked at once, and compressing it takes as long as building it.
    build_settings = temporary / "build.cfg"
    build_settings.write_text("[bdist_wheel]\ncompression = stored\n")
    environment.setdefault("DIST_EXTRA_CONFIG", str(build_settings))
    return environment


@contextmanager
def _temporary_folder(venv: Path) -> Iterator[Path]:
    """A folder for pip's temporary files on the disk of the environment: /tmp may be small, and PySpark is not."""
    folder = venv / "tmp"
    folder.mkdir(exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _only_install(progress: Progress) -> Iterator[None]:
    """Wait while another install works in this source tree."""
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        end_s = time.monotonic() + _LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end_s:
                    raise InstallError("Another install in this folder does not end. Stop it and try again.") from None
                progress.show("Waiting for another install in this folder")
                time.sleep(0.5)
        yield
    finally:
        os.close(folder)


def _version_of(venv: Path) -> str | None:
    """The version of the environment's Python, as in 3.11; None if it does not run, or has no pip."""
    code = "import sys, importlib.util as u; print('%d.%d' % sys.version_info[:2]); sys.exit(not u.find_spec('pip'))"
    try:
        done = subprocess.run([_python(venv), "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _last_lines(log: TextIO) -> str:
    log.flush()
    lines = [line for line in Path(log.name).read_text(errors="replace").splitlines() if line.strip()]
    return "\n".join(f"    {line}" for line in lines[-_SHOWN_LINES:])


def _empty(folder: Path) -> None:
    """Remove what is in the folder. It may itself be a link to a folder on another disk."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _bytes_of(file: Path) -> int:
    """The size of a file that another process may remove at any time."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _size_mb(folder: Path) -> float:
    return sum(path.lstat().st_blocks for path in folder.rglob("*")) * 512 / 1e6


def _python(venv: Path) -> str:
    return str(venv / "bin" / "python")


def _site_packages(venv: Path) -> Path:
    return next(venv.glob("lib/python3*/site-packages"), venv)


def _short(path: Path) -> str:
    """The path as a user would write it: relative if it is in this folder."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _normal(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


if __name__ == "__main__":
    sys.exit(main())
