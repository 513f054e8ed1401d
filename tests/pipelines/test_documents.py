"""The code of the guides that needs Spark runs as it is written. `tests/snippets.py` says how it is found."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.docstrings import SPARK, public_names
from tests.snippets import PAGES, ROOT, blocks_of
from typer.testing import CliRunner

from headrace import Client
from headrace.cli.main import app
from headrace.pipelines.spec.file import SpecFile
from headrace.testing import Broker

BLOCKS = [block for page in PAGES for block in blocks_of(page) if block.language == "spark"]


@pytest.mark.parametrize("page", dict.fromkeys(block.page for block in BLOCKS))
def test_the_code_of_a_page_runs_on_spark(
    page: str, spark, headrace_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", headrace_broker.bootstrap)
    monkeypatch.setenv("SHOP_DB", "")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))

    def headrace(*arguments: str) -> None:
        subprocess.run([sys.executable, "-m", "headrace", *arguments], check=True, capture_output=True, timeout=120)

    @contextmanager
    def this_session(_: SpecFile, *, for_rows: bool = False) -> Iterator[object]:
        yield spark

    monkeypatch.setattr("headrace.cli.pipeline.preview.quick_session", this_session)

    def with_this_session(arguments: list[str]) -> None:
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, (arguments, done.output, done.exception)

    # The JVM has a folder of its own to work in, so that names of files are made absolute for it.
    places = {"localhost:9092": headrace_broker.bootstrap, "checkpoints/": f"{tmp_path}/checkpoints/"}
    places |= {"lake/": f"{tmp_path}/lake/", '"\u2026"': f'"{tmp_path}/checkpoint"'}
    (toml, *_) = re.findall(r"```toml\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL) or [""]
    names = {"spark": spark, "headrace": headrace, "page_toml": toml}
    try:
        for block in BLOCKS:
            if block.page == page:
                is_shell = block.text.startswith("headrace ")
                code = block.setup if is_shell else block.setup + block.text
                for name, place in places.items():
                    code = code.replace(name, place)
                exec(compile(code, block.where, "exec"), names)
                for line in block.text.splitlines() if is_shell else ():
                    with_this_session(shlex.split(line, comments=True)[1:])
        for query in spark.streams.active:
            query.processAllAvailable()
            assert query.exception() is None
        if page == "docs/tables.md":
            assert [names[name].count() for name in ("orders", "typed")] == [1, 1]
    finally:
        for query in spark.streams.active:
            query.stop()


def test_the_examples_of_the_data_source_run(spark, headrace_broker: Broker) -> None:
    with Client(headrace_broker.bootstrap) as client:
        client.publish("orders", "tea")
    blocks = [block for public in public_names(SPARK) for block in public.blocks()]
    assert blocks
    for block in blocks:
        names = {"spark": spark}
        exec(block.text.replace("localhost:9092", headrace_broker.bootstrap), names)
        assert [row.value for row in names["orders"].selectExpr("CAST(value AS STRING)").collect()] == ["tea"]
