"""What is installed already is left alone; what cannot be relied on is made anew."""

from dataclasses import replace
from pathlib import Path

import pytest
from tools.stamp import Plan, Stamp, decide, hash_inputs, read_stamp

ROOT = Path(__file__).parents[3]
RUN = Stamp(("cluster", "spark"), "hash", "3.11", "/usr/bin/python3.11", "/src/.venv", "/src")
TEST = replace(RUN, extras=("cluster", "dev", "spark"))


def plan(found: Stamp | None, wanted: Stamp, python: str | None = "3.11", this_python: bool = False) -> Plan:
    return decide(found, wanted, python, exists=True, this_python=this_python)


def test_a_new_environment() -> None:
    assert decide(None, RUN, None, exists=False, this_python=False) == Plan(RUN, remake=True)


def test_nothing_is_to_be_done_when_all_of_it_or_more_is_there() -> None:
    assert plan(RUN, RUN) == Plan(None)
    assert plan(TEST, RUN) == Plan(None)


def test_extras_are_added_to_what_is_there() -> None:
    assert plan(RUN, TEST) == Plan(TEST)
    assert plan(replace(RUN, extras=("dev",)), RUN) == Plan(TEST)


def test_new_versions_are_installed_with_all_extras_that_are_there() -> None:
    assert plan(TEST, replace(RUN, inputs="other")) == Plan(replace(TEST, inputs="other"))


@pytest.mark.parametrize(
    ("found", "python", "reason"),
    [
        (RUN, None, "its Python does not run any more"),
        (None, None, "its Python does not run any more"),
        (replace(RUN, finished=False), "3.11", "its last install was interrupted"),
        (RUN, "3.13", "it was made with Python 3.11, which is now 3.13"),
        (replace(RUN, venv="/elsewhere/.venv"), "3.11", "it was moved"),
        (replace(RUN, root="/elsewhere"), "3.11", "it was moved"),
    ],
)
def test_a_broken_environment_is_made_anew(found: Stamp | None, python: str | None, reason: str) -> None:
    assert plan(found, RUN, python) == Plan(RUN, remake=True, reason=reason)


def test_a_repair_keeps_the_extras() -> None:
    assert plan(TEST, RUN, python=None).stamp == TEST


def test_another_interpreter_counts_only_if_it_was_asked_for() -> None:
    other = replace(RUN, python="3.12", interpreter="/usr/bin/python3.12")
    assert plan(RUN, other) == Plan(None)
    assert plan(RUN, other, this_python=True).remake
    assert plan(None, other, this_python=True).remake
    assert not plan(None, RUN, this_python=True).remake


def test_an_update_says_which_interpreter_the_environment_has() -> None:
    other = replace(TEST, python="3.12", interpreter="/usr/bin/python3.12")
    assert plan(RUN, other) == Plan(TEST)


def test_a_stamp_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_stamp(tmp_path) is None
    RUN.write(tmp_path)
    assert read_stamp(tmp_path) == RUN


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"extras": [], "later": 1}'])
def test_a_stamp_that_is_not_understood_is_none(tmp_path: Path, text: str) -> None:
    RUN.write(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(text)
    assert read_stamp(tmp_path) is None


def test_inputs_are_what_an_install_depends_on(tmp_path: Path) -> None:
    project, pins = tmp_path / "pyproject.toml", tmp_path / "constraints.txt"
    project.write_text((ROOT / "pyproject.toml").read_text())
    pins.write_text((ROOT / "constraints.txt").read_text())
    before = hash_inputs(tmp_path)
    project.write_text(project.read_text().replace("line-length = 120", "line-length = 100"))
    pins.write_text("# A comment\n" + pins.read_text())
    assert hash_inputs(tmp_path) == before
    pins.write_text(pins.read_text() + "more==1.0\n")
    changed = hash_inputs(tmp_path)
    assert changed != before
    project.write_text(project.read_text().replace('"rich>=13.0"', '"rich>=14"'))
    assert hash_inputs(tmp_path) != changed
