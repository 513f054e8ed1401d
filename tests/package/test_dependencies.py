"""What the package requires is what its code imports: nothing is missing, and nothing is installed for nothing."""

import ast
import re
import sys
from collections.abc import Iterator

import pytest

from headrace.model.extras import EXTRAS

from .conftest import ROOT
from .test_build import PROJECT

pytestmark = pytest.mark.xdist_group("package")

OWN = {"headrace", "pyspark_headrace"}
FOR_TYPES = {"_typeshed"}
OF_USERS = {"pytest"}
"""The plugin is imported by pytest alone."""
OF_PYTHON = {"tzdata"}
"""Read by zoneinfo where the system has no time zones."""
MODULES = {"google-re2": "re2", "protobuf": "google", "PyJWT": "jwt"}
"""The module of a requirement, where its name is another."""


def imported() -> Iterator[str]:
    """The names of all modules that the code imports."""
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
                yield node.module


def required() -> set[str]:
    """The modules that the requirements are there for."""
    names = (re.split(r"[^\w-]", line, maxsplit=1)[0] for line in PROJECT["dependencies"])
    return {MODULES.get(name, name.replace("-", "_")) for name in names}


def test_requirements_are_what_is_imported() -> None:
    modules = set(imported())
    packages = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - OWN - FOR_TYPES - OF_USERS
    of_extras = {module for extra in EXTRAS for module in extra.modules + extra.more_modules}
    assert packages - of_extras == required() - OF_PYTHON
    assert packages >= of_extras - {"pandas"}, "an extra names a module that nothing imports; PySpark imports pandas"
