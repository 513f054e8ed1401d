"""Every block of code in the README and in `docs/` is run as it is written, or is listed with the reason why not."""

import re

import pytest

from tests.not_run import NOT_RUN
from tests.snippets import PAGES, ROOT, Block, blocks_of

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
RUN_BY = {
    **dict.fromkeys(("python", "shell", "pytest", "settings", "pipeline"), "tests/interop/test_documents.py"),
    "spark": "tests/pipelines/test_documents.py",
    "cluster": "tests/interop/test_cli_cluster_dev.py",
}
"""The file that runs the blocks of each kind. `text` is not code."""
CODE = re.compile(r"\$ |\. |(headrace|make|pip|python|echo|import|from|for|def|with|SELECT|\[\w+\])\b")


def first_line(block: Block) -> str:
    return block.text.partition("\n")[0]


def test_there_are_blocks_of_every_kind() -> None:
    assert {block.language for block in BLOCKS} == {*RUN_BY, "text"}
    assert all((ROOT / file).exists() for file in RUN_BY.values())
    assert len([block for block in BLOCKS if block.language != "text"]) >= 85


def test_what_is_listed_as_not_run_is_in_the_pages() -> None:
    assert {*NOT_RUN} <= {*PAGES}
    for page, reasons in NOT_RUN.items():
        found = [first_line(block) for block in BLOCKS if block.page == page]
        assert {line: found.count(line) for line in reasons} == dict.fromkeys(reasons, 1), page


def test_a_block_is_left_out_only_where_it_is_listed_or_a_program_is_missing() -> None:
    for block in BLOCKS:
        if block.reason and not block.reason.startswith("there is no "):
            assert block.reason == NOT_RUN[block.page][first_line(block)], block.where


def test_what_blocks_need_is_what_make_test_installs() -> None:
    installed = set(re.findall(r"\s(\w+)=[\w-]+", (ROOT / "Makefile").read_text().partition("\nPACKAGES :=")[2]))
    needed = {name for page in PAGES for name in re.findall(r"<!-- needs: (\S+) -->", (ROOT / page).read_text())}
    assert needed
    assert needed <= installed


def test_few_blocks_are_not_run() -> None:
    """A page cannot be listed as a whole without anybody noticing."""
    assert sum(map(len, NOT_RUN.values())) <= 14
    assert sum(len(lines) for page, lines in NOT_RUN.items() if page in ("README.md", "docs/quickstart.md")) <= 4


@pytest.mark.parametrize("block", [each for each in BLOCKS if each.reason], ids=lambda block: block.where)
def test_code_that_is_not_run_is_code(block: Block) -> None:
    block.check_syntax()


@pytest.mark.parametrize("block", [each for each in BLOCKS if each.language == "text"], ids=lambda block: block.where)
def test_what_is_called_text_is_not_code(block: Block) -> None:
    assert CODE.match(block.text) is None


@pytest.mark.parametrize(
    "reason",
    sorted({reason for reasons in NOT_RUN.values() for reason in reasons.values()}),
    ids=lambda text: text[:40],
)
def test_reasons_name_files_that_exist(reason: str) -> None:
    for file in re.findall(r"\b(?:tests|interop)/[\w./]+\b", reason):
        assert (ROOT / file).exists(), file


def test_the_task_queue_frameworks_run_the_code_of_the_page() -> None:
    for line, reason in NOT_RUN["docs/queues.md"].items():
        if found := re.search(r"(interop/\w+/tasks\.py) runs this block", reason):
            assert f'page_code("{line}")' in (ROOT / found[1]).read_text(), line
