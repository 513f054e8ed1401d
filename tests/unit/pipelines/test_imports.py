"""What works without PySpark, and the public names of `headrace.pipelines`."""

import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import headrace.pipelines

WITHOUT_PYSPARK = """
import importlib, sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
for name in sys.argv[1:]:
    module, _, attribute = name.partition(":")
    try:
        found = importlib.import_module(module)
        if attribute:
            getattr(found, attribute)
    except ImportError:
        continue
    print(name)
"""


def importable_without_pyspark(names: list[str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PYSPARK, *names], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.split()


def test_a_module_either_needs_pyspark_or_is_in_the_contract_that_forbids_it() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    contracts = pyproject["tool"]["importlinter"]["contracts"]
    (contract,) = (each for each in contracts if each.get("forbidden_modules") == ["pyspark"])
    modules = [
        each.name
        for each in pkgutil.walk_packages(headrace.pipelines.__path__, "headrace.pipelines.")
        if not each.ispkg and each.name != "headrace.pipelines.run.session"  # it says that PySpark is missing
    ]
    listed = [name for name in modules if any(f"{name}.".startswith(f"{each}.") for each in contract["source_modules"])]
    assert importable_without_pyspark(modules) == listed


def test_public_names_that_need_no_spark_do_not_import_it() -> None:
    names = [f"headrace.pipelines:{name}" for name in headrace.pipelines.__all__]
    assert importable_without_pyspark(names) == [
        f"headrace.pipelines:{name}" for name in ("SpecFile", "StateFolder", "UpsertOptions", "clean_up")
    ]


def test_every_public_name_is_there() -> None:
    pytest.importorskip("pyspark")
    for name in headrace.pipelines.__all__:
        assert getattr(headrace.pipelines, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = headrace.pipelines.nothing_like_it
