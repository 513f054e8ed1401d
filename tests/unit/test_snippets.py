"""Blocks of code are found in pages, and one that does not do what its page says fails."""

from pathlib import Path

import pytest

from tests.snippets import Block, collect, runner

PAGE = """# A page

    $ headrace topic list
    orders

    sent ──> delayed

<!-- not run: there is
no broker -->

    echo one
    echo two

```python
first = 1
```

Words between, so that a comment does not count for what comes later.

<!-- setup
second = 2
-->
<!-- until: ready -->

```python
print(second)
```

1. A list

   <!-- pytest -->
   ```python
   def test_nothing(): ...
   ```
"""


def test_blocks_and_their_comments_are_found() -> None:
    assert [*collect("page.md", PAGE)] == [
        Block("page.md", 3, "shell", "$ headrace topic list\norders\n"),
        Block("page.md", 11, "shell", "echo one\necho two\n", reason="there is no broker"),
        Block("page.md", 15, "python", "first = 1\n"),
        Block("page.md", 26, "python", "print(second)\n", setup="second = 2\n", until="ready"),
        Block("page.md", 33, "pytest", "def test_nothing(): ...\n"),
    ]


def test_a_comment_that_is_not_understood_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"page\.md:4: a comment that is not understood: not ran: a typo"):
        [*collect("page.md", "<!-- not ran: a typo -->\n\n\n    echo one\n")]


def test_blocks_share_names_and_a_session(tmp_path: Path) -> None:
    with runner(tmp_path, {"localhost:9092": "127.0.0.1:1"}, {"WHO": "alice"}) as run:
        run.run(Block("page.md", 1, "python", "address = 'localhost:9092'\n"))
        assert run.run(Block("page.md", 2, "python", "print(address)\n")) == "127.0.0.1:1\n"
        assert run.run(Block("page.md", 3, "shell", "$ echo $WHO\nali…\n")) == "alice\n"
        endless = "import time\nwhile True:\n    print('ready')\n    time.sleep(0.01)\n"
        assert "ready" in run.run(Block("page.md", 4, "python", endless, until="ready"))


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (Block("page.md", 7, "python", "print(1 / 0)\n"), "ZeroDivisionError"),
        (Block("page.md", 7, "shell", "false\ntrue\n"), "failed with 1"),
        (Block("page.md", 7, "shell", "$ echo one\ntwo\n"), "two"),
        (Block("page.md", 7, "python", "print('never')\n", until="ready"), "did not print ready"),
        (Block("page.md", 7, "pytest", "def test_wrong():\n    assert False\n"), "assert False"),
    ],
    ids=lambda value: value.language if isinstance(value, Block) else None,
)
def test_a_block_that_is_wrong_fails(tmp_path: Path, block: Block, reason: str) -> None:
    with runner(tmp_path, {}, {}) as run, pytest.raises(AssertionError, match=reason) as raised:
        run.run(block)
    assert "page.md:7" in str(raised.value)
