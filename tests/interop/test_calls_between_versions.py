"""What brokers of two versions send each other during a rolling upgrade is understood by both."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.earlier_versions import DATA, environment_of

from . import call_samples

EARLIER = sorted(path.name for path in DATA.iterdir() if path.is_dir())


def run(argument: str, env: dict[str, str], given: Any = None) -> Any:
    done = subprocess.run(
        [sys.executable, call_samples.__file__, argument],
        input=json.dumps(given),
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("version", EARLIER)
def test_calls_and_answers_are_read_by_both_versions(version: str, tmp_path: Path) -> None:
    """A call may have got fields that the other version leaves out, or does not look at: what both have is the same."""
    old = environment_of(version, tmp_path)
    written_by_old, written_by_new = run("write", old), run("write", {})
    assert len(written_by_old) > 20
    assert written_by_old.keys() <= written_by_new.keys(), "a call that an older broker makes must not go away"
    read_by_new = run("read", {}, {name: data for name, (data, _) in written_by_old.items()})
    known = {name: data for name, (data, _) in written_by_new.items() if name in written_by_old}
    read_by_old = run("read", old, known)
    for name, (_, meant) in written_by_old.items():
        assert same_fields(meant, read_by_new[name]), f"{name} of {version} is read as {read_by_new[name]}, not {meant}"
        assert same_fields(read_by_old[name], meant), f"{version} reads {name} as {read_by_old[name]}, not {meant}"


def same_fields(older: Any, newer: Any) -> bool:
    """Whether the fields of the older version have the same values in the newer one, which may have more at the end."""
    if isinstance(older, list) and isinstance(newer, list):
        return len(older) <= len(newer) and all(map(same_fields, older, newer))
    if isinstance(older, dict) and isinstance(newer, dict):
        return all(name in newer and same_fields(value, newer[name]) for name, value in older.items())
    return bool(older == newer)
