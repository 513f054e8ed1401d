"""The documents name modules, classes and methods that exist, and the drawings of the architecture are true."""

import ast
import builtins
import importlib
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

import headrace
from headrace import Client, Message, Queue, QueueMessage

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "headrace"
ARCHITECTURE = ROOT / "docs/architecture.md"
PAGES = sorted(
    page
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
    # A log of what was, values of settings, and names of Kafka's and SQS's calls.
    if page.name not in ("CHANGELOG.md", "settings.md", "compatibility.md")
)
NAME = re.compile(r"`([A-Za-z_][\w.]*)(?:\([^`]*\))?`")
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

NOT_OURS = {
    "Accept", "ApproximateReceiveCount", "DeleteMessage", "DeleteRecords", "HttpToolsProtocol", "Literal", "SqlCatalog",
    "Mount", "Router", "Starlette", "SteadyChannel", "SubscribedTopicRegex",
    "RecordNameStrategy", "TopicNameStrategy", "TopicRecordNameStrategy",
    "Decimal", "Enum", "IllegalStateException", "Order", "PolicyViolationError",
    "headrace.lake_revenue", "headrace.orders", "IdentityReplicationPolicy",
    "ApproximateNumberOfMessages", "DelaySeconds", "MessageDeduplicationId", "MessageGroupId", "VisibilityTimeout",
    "WaitTimeSeconds",
}  # fmt: skip
"""Of other programs, of examples, and names of tables."""
ALERTS = set(re.findall(r"alert: (\w+)", (ROOT / "deploy/prometheus/alerts.yml").read_text()))
"""The names of alert rules, which a page explains."""
OBJECTS = {"client": (Client,), "message": (Message, QueueMessage), "emails": (Queue,), "redrive": (headrace.Redrive,)}
"""What a name in the pages about the SDK is an object of."""


# Read when the first test needs it, and in one process of the run: each that collects the tests would parse the tree.
pytestmark = pytest.mark.xdist_group("docs symbols")


@cache
def nodes() -> list[ast.AST]:
    return [node for file in (ROOT / "src").rglob("*.py") for node in ast.walk(ast.parse(file.read_text()))]


@cache
def class_members() -> dict[str, set[str]]:
    """The names that each class of the tree defines, its bases included."""
    own: dict[str, set[str]] = {}
    bases: dict[str, set[str]] = {}
    for node in (node for node in nodes() if isinstance(node, ast.ClassDef)):
        stored = (
            each for each in ast.walk(node) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
        )
        names = {each.attr for each in stored}
        names |= {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
        names |= {each.id for line in node.body for each in ast.walk(line) if isinstance(each, ast.Name)}
        own.setdefault(node.name, set()).update(names)
        bases.setdefault(node.name, set()).update(re.findall(r"\w+", " ".join(map(ast.unparse, node.bases))))
    return {name: names.union(*(own.get(base, set()) for base in bases[name])) for name, names in own.items()}


@cache
def strings() -> set[str]:
    return {node.value for node in nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def is_importable(name: str) -> bool:
    """Whether it is a module, or a name in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def problem_with(name: str) -> str:
    """Why a name in backticks does not exist; empty if it does, or is not one of ours."""
    first, _, rest = name.partition(".")
    if name in NOT_OURS or name in ALERTS:
        return ""
    if first == "headrace" and rest:
        return "" if name in strings() or is_importable(name) else "no such module or name"
    if first in OBJECTS and rest.isidentifier():
        return "" if any(hasattr(kind, rest) for kind in OBJECTS[first]) else f"{first} has no {rest}"
    if re.fullmatch(r"[A-Z][a-z]+\w*", first) and not hasattr(builtins, first):
        members = class_members()
        if first not in members:
            return "" if rest else "no such class"
        return "" if not rest or rest in members[first] else f"{first} has no {rest}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_in_the_pages_exist(page: Path) -> None:
    found = {name: problem_with(name) for name in NAME.findall(FENCED.sub("", page.read_text()))}
    assert {name: problem for name, problem in found.items() if problem} == {}


@pytest.mark.parametrize("page", [ARCHITECTURE, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_functions_that_are_named_are_in_the_code(page: Path) -> None:
    names = {name for name in NAME.findall(FENCED.sub("", page.read_text())) if re.fullmatch(r"[a-z]+_[a-z_]+", name)}
    words = {word for file in (ROOT / "src").rglob("*.py") for word in re.findall(r"\w+", file.read_text())}
    assert names - words == set()


@pytest.mark.parametrize(
    "name", ["Client.publsh", "headrace.client.nowhere", "message.boddy", "Engin", "headrace.testing.Brokr"]
)
def test_a_name_that_does_not_exist_is_found(name: str) -> None:
    assert problem_with(name)


def test_the_picture_of_layers_is_that_of_the_linter_and_of_the_tree() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["headrace"]]
    picture = FENCED.search(ARCHITECTURE.read_text().partition("## Layers")[2])
    assert picture is not None
    assert [re.split(r" {2,}", line)[0] for line in picture[2].splitlines()] == layers
    drawn = {name for layer in layers for name in layer.split(" | ")}
    packages = {file.parent.name for file in SOURCE.glob("*/__init__.py")}
    modules = {file.stem for file in SOURCE.glob("*.py")} - {"__init__", "__main__"}
    assert drawn == packages | modules


def test_files_and_packages_in_drawings_exist() -> None:
    places = (SOURCE, SOURCE / "kafka", SOURCE / "queues")
    named = [
        path
        for language, text in FENCED.findall(ARCHITECTURE.read_text())
        if language == "text"
        for path in re.findall(r"\b[a-z_]+/[\w/]+(?:\.py)?", text)
    ]
    assert len(named) >= 40
    assert [path for path in named if not any((place / path).exists() for place in places)] == []


def test_drawings_are_in_line() -> None:
    """The sides of a box are below each other."""
    for _, text in FENCED.findall(ARCHITECTURE.read_text()):
        width = None
        for line in text.splitlines():
            if line.startswith("┌"):
                width = len(line)
            if width is not None and line.startswith(("┌", "│", "└")):
                assert len(line) == width, line
            if line.startswith("└"):
                width = None
