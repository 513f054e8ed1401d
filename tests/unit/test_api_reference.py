"""Every public name has a docstring with an example and a page in `docs/api/`."""

import re
from typing import Any

import pytest

from headrace.pipelines.sink import options as sink
from headrace.pipelines.source import options as source
from tests.docstrings import MODULES, SETUP, PublicName, public_names
from tests.snippets import ROOT

NAMES = public_names()
PAGES = {page.name: page.read_text() for page in (ROOT / "docs/api").glob("*.md")}
SHOWN = [name for text in PAGES.values() for name in re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE)]


@pytest.mark.parametrize("public", NAMES, ids=lambda public: public.name)
def test_a_public_name_has_a_docstring_with_an_example_and_a_page(public: PublicName) -> None:
    first, _, _ = public.docstring.partition("\n")
    assert first.endswith("."), "the first line is a sentence"
    assert public.blocks(), "there is no example"
    assert SHOWN.count(public.name) == 1


@pytest.mark.parametrize("public", NAMES, ids=lambda public: public.name)
def test_examples_are_fenced_python(public: PublicName) -> None:
    """An indented block looks like an example, and is not run."""
    assert {block.language for block in public.blocks()} <= {"python", "spark"}
    for block in public.blocks():
        block.check_syntax()


def test_pages_show_public_names_and_option_lists_only() -> None:
    lists = {source.__name__, sink.__name__}
    assert {*SHOWN} == {public.name for public in NAMES} | lists
    assert len(SHOWN) == len({*SHOWN})
    assert len(NAMES) >= 40
    assert {*MODULES} == {public.name.rpartition(".")[0] for public in NAMES}


def test_the_names_that_examples_use_are_explained() -> None:
    for line in SETUP.strip().splitlines():
        assert line in PAGES["README.md"], line


@pytest.mark.parametrize(("module", "page"), [(source, "docs/spark.md"), (sink, "docs/spark.md")])
def test_every_spark_option_is_explained(module: Any, page: str) -> None:
    names = set(module._NAMES)
    assert names <= set(re.findall(r"`([\w.]+)`", module.__doc__))
    in_page = set(re.findall(r"`([\w.]+)`", (ROOT / page).read_text()))
    tuning = {"kafka.max.partition.fetch.bytes", "kafka.socket.connection.setup.timeout.ms", "kafka.security.protocol"}
    assert names - tuning <= in_page
