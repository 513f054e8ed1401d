"""A missing optional dependency is a sentence that says what to install."""

import importlib
import tomllib
from pathlib import Path

import pytest

from headrace.model.errors import MissingExtra
from headrace.model.extras import ARCHIVE, EXTRAS, SPARK, Extra, missing_extra, require

ROOT = Path(__file__).parents[3]


def test_an_extra_whose_modules_are_installed_is_fine() -> None:
    require(Extra("json", "JSON", ("json",), ("no_such_module",)))


def test_a_module_that_is_not_installed_is_a_sentence() -> None:
    with pytest.raises(MissingExtra) as caught:
        require(Extra("moon", "the moon", ("json", "no_such_module")))
    assert str(caught.value) == "this needs the moon: pip install 'headrace[moon]'"


@pytest.mark.parametrize(
    ("module", "extra"), [("pyspark.sql", SPARK), ("psycopg", SPARK), ("pyarrow.parquet", ARCHIVE), ("numpy", ARCHIVE)]
)
def test_a_failed_import_names_the_smallest_extra(module: str, extra: Extra) -> None:
    assert str(missing_extra(ModuleNotFoundError(f"No module named {module!r}", name=module))) == extra.sentence


def test_other_failures_are_not_explained_away() -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("headrace.no_such_module")
    assert missing_extra(caught.value) is None
    assert missing_extra(ImportError("cannot import name")) is None


def test_every_extra_that_is_named_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {extra.name for extra in EXTRAS} | {"dev", "site"} == set(project["optional-dependencies"])
