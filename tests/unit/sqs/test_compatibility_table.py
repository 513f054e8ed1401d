"""The tables in the SQS section of docs/compatibility.md name everything that botocore's model of SQS has, and tests
that exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import botocore.session
import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = ("tests/unit/sqs", "tests/interop")
SPAN = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    group: str
    names: tuple[str, ...]
    """Code that the first cell begins with: what the row is about."""
    is_action: bool
    tests: tuple[str, ...]


@cache
def rows() -> tuple[Row, ...]:
    text = (ROOT / "docs/compatibility.md").read_text()
    section = text.partition("\n### Every action and attribute\n")[2].partition("\n### ")[0].partition("\n## ")[0]
    return tuple(_rows(section))


def _rows(section: str) -> Iterator[Row]:
    group = ""
    for line in section.splitlines():
        if line.startswith("#### "):
            group = line.removeprefix("#### ")
        if line.startswith("|") and not line.startswith(
            ("|---", "| Action or", "| Attribute |", "| Error |", "| Case |")
        ):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            is_action = cells[0].startswith("**`")
            names = SPAN.findall(cells[0]) if is_action or cells[0].startswith("`") else []
            yield Row(group, tuple(names), is_action, tuple(SPAN.findall(cells[-1])))


def model() -> Any:
    return botocore.session.get_session().get_service_model("sqs")


def parameters() -> set[tuple[str, str]]:
    """Every action with each of its parameters, as the tables have them."""
    found: set[tuple[str, str]] = set()
    action = ""
    for row in rows():
        if row.is_action:
            (action,) = row.names
        elif row.group in ("Queues", "Tags and permissions", "Message move tasks", "Messages"):
            found |= {(action, name) for name in row.names}
    return found


def test_every_action_stands_in_a_table() -> None:
    actions = [name for row in rows() if row.is_action for name in row.names]
    assert sorted(actions) == sorted(model().operation_names)


def test_every_parameter_stands_below_its_action() -> None:
    expected = {
        (action, name)
        for action in model().operation_names
        for name in model().operation_model(action).input_shape.members
        if name != "QueueUrl"
    }
    found = parameters()
    assert expected - found == set()
    assert {name for _, name in found - expected} <= {"QueueUrl"}


@pytest.mark.parametrize(
    ("group", "shape"),
    [
        ("Attributes of queues", "QueueAttributeName"),
        ("Attributes of messages that AWS sets", "MessageSystemAttributeName"),
    ],
)
def test_every_attribute_stands_in_a_table(group: str, shape: str) -> None:
    expected = set(model().shape_for(shape).enum)
    found = {name for row in rows() if row.group == group for name in row.names}
    assert found | {"All"} == expected | {"All"}


def test_every_error_stands_in_a_table() -> None:
    expected = {name for name in model().shape_names if model().shape_for(name).metadata.get("exception")}
    assert {name for row in rows() if row.group == "Errors" for name in row.names} == expected


def test_every_row_names_tests_that_exist() -> None:
    for row in rows():
        assert row.tests, f"{row.names} names no test"
        for test in row.tests:
            file, _, name = test.partition("::")
            folders = [""] if "/" in file else FOLDERS
            paths = [ROOT / folder / file for folder in folders if (ROOT / folder / file).is_file()]
            assert paths, f"{test}: there is no such file"
            assert name in _functions(paths[0]), f"{test}: there is no such test"


@cache
def _functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
