"""What a virtual environment was made from, written into it, and what is to be done when something else is wanted.

An install that was interrupted leaves a stamp that says so: its files may be half written, so it is made anew.
"""

import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

_NAME = "headrace-install.json"


@dataclass(frozen=True)
class Stamp:
    extras: tuple[str, ...]
    """The extras of pyproject.toml that are installed, sorted."""
    inputs: str
    """A hash of what pyproject.toml, constraints.txt and the build hook say about the install."""
    python: str
    """The interpreter's version, as in 3.11."""
    interpreter: str
    """The interpreter that the environment was made with: a path without links."""
    venv: str
    """Where it is. Its commands have this path written into them."""
    root: str
    """The source tree that it runs."""
    finished: bool = True

    def write(self, venv: Path) -> None:
        (venv / _NAME).write_text(json.dumps(asdict(self), indent=1) + "\n")


def read_stamp(venv: Path) -> Stamp | None:
    """The stamp of this environment; None if it has none, or one that this version does not understand."""
    try:
        values: dict[str, Any] = json.loads((venv / _NAME).read_text())
        return Stamp(**values | {"extras": tuple(values["extras"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def has_stamp(venv: Path) -> bool:
    return (venv / _NAME).exists()


def hash_inputs(root: Path) -> str:
    """A hash of what an install depends on; other parts of pyproject.toml, such as a linter's rules, are not in it."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    used = [project.get("build-system"), project.get("project"), project.get("tool", {}).get("hatch")]
    pins = [line.partition("#")[0].strip() for line in (root / "constraints.txt").read_text().splitlines()]
    used.append(sorted(filter(None, pins)))
    hook = root / "hatch_build.py"
    used.append(hook.read_text() if hook.exists() else None)
    return hashlib.sha256(json.dumps(used, sort_keys=True, default=str).encode()).hexdigest()


@dataclass(frozen=True)
class Plan:
    """What to do, or nothing when `stamp` is None."""

    stamp: Stamp | None
    """What the environment's stamp will say."""
    remake: bool = False
    """Remove the environment first."""
    reason: str = ""
    """Why it is removed, in a sentence, where there was one."""


def decide(found: Stamp | None, wanted: Stamp, python: str | None, exists: bool, this_python: bool) -> Plan:
    """Compare what is there with what is wanted.

    `found` is the stamp of what is there, `python` the version of its interpreter or None if that does not run.
    `this_python` says that the user has asked for the interpreter in `wanted`; otherwise any that works is kept.
    """
    if not exists:
        return Plan(wanted, remake=True)
    reason = _broken(found, wanted, python, this_python)
    if reason:
        # The extras stay, so that what worked before the repair works after it.
        extras = found.extras if found and found.finished else ()
        return Plan(_with_extras(wanted, extras), remake=True, reason=reason)
    if found is None:
        return Plan(wanted)
    if set(wanted.extras) <= set(found.extras) and wanted.inputs == found.inputs:
        return Plan(None)
    kept = replace(wanted, python=found.python, interpreter=found.interpreter)
    return Plan(_with_extras(kept, found.extras))


def _broken(found: Stamp | None, wanted: Stamp, python: str | None, this_python: bool) -> str:
    """Why the environment cannot be used; empty if it can."""
    if python is None:
        return "its Python does not run any more"
    if found is None:
        return f"it has Python {python}" if this_python and python != wanted.python else ""
    if not found.finished:
        return "its last install was interrupted"
    if python != found.python:
        return f"it was made with Python {found.python}, which is now {python}"
    if (found.venv, found.root) != (wanted.venv, wanted.root):
        return "it was moved"
    if this_python and found.interpreter != wanted.interpreter:
        return f"it was made with another Python ({found.interpreter})"
    return ""


def _with_extras(stamp: Stamp, more: tuple[str, ...]) -> Stamp:
    return replace(stamp, extras=tuple(sorted({*stamp.extras, *more})))
