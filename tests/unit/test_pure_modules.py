"""A module says that it is pure if and only if the import contract holds it to that."""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
CONTRACT = "Pure modules import no I/O"


def _says_pure(path: Path) -> bool:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return re.search(r"\bPure\b", docstring) is not None


def _modules_that_say_so() -> set[str]:
    return {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        for path in (SOURCE / "headrace").rglob("*.py")
        if _says_pure(path)
    }


def _modules_of_contract() -> set[str]:
    """A package stands for all its modules, as import-linter reads it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert settings["include_external_packages"], "without it the standard library is not seen"
    (contract,) = (each for each in settings["contracts"] if each["name"] == CONTRACT)
    found = set()
    for module in contract["source_modules"]:
        path = SOURCE.joinpath(*module.split("."))
        found.add(module)
        found |= {f"{module}.{each.stem}" for each in path.glob("*.py") if each.stem != "__init__"}
    return found


def test_modules_that_say_pure_are_those_of_the_contract() -> None:
    assert _modules_that_say_so() == _modules_of_contract()
