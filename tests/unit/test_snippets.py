"""Blocks of code are found in pages, and one that does not do what its page says fails."""

from pathlib import Path

import pytest

from tests.snippets import Block, collect, runner

PAGE = """# A page

    $ headrace topic list
    orders

<!-- text -->

    sent ──> delayed

<!-- asked: first?; typed: one -->
<!-- asked: second?; typed: two -->

    read first
    read second

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

```toml
# revenue.toml
[source]
```
"""


def test_blocks_and_their_comments_are_found() -> None:
    assert [*collect("page.md", PAGE)] == [
        Block("page.md", 3, "shell", "$ headrace topic list\norders\n"),
        Block("page.md", 8, "text", "sent ──> delayed\n"),
        Block("page.md", 13, "shell", "read first\nread second\n", asked=(("first?", "one"), ("second?", "two"))),
        Block("page.md", 17, "python", "first = 1\n"),
        Block("page.md", 28, "python", "print(second)\n", setup="second = 2\n", until="ready"),
        Block("page.md", 35, "pytest", "def test_nothing(): ...\n"),
        Block("page.md", 39, "pipeline", "# revenue.toml\n[source]\n"),
    ]
    assert [block.file for block in collect("page.md", PAGE)][-2:] == ["", "revenue.toml"]


def test_a_comment_that_is_not_understood_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"page\.md:4: a comment that is not understood: not ran: a typo"):
        [*collect("page.md", "<!-- not ran: a typo -->\n\n\n    echo one\n")]


@pytest.mark.parametrize("fence", ["```", "```py", "~~~"])
def test_a_block_that_does_not_say_what_it_is_is_an_error(fence: str) -> None:
    with pytest.raises(AssertionError, match=r"page\.md:2: .* is not one of"):
        [*collect("page.md", f"\n{fence}\nprint(1)\n{fence[:3]}\n")]


def test_a_terminal_asks_is_answered_and_is_interrupted(tmp_path: Path) -> None:
    asks = "test -t 0\nread -p 'who? ' who\nread -p 'what? ' what\necho $who has $what\n"
    endless = "echo ready\nuntil test -e called; do sleep 0.01; done\necho heard\nsleep 600\n"
    with runner(tmp_path, {}, {}) as run:
        printed = run.run(Block("page.md", 1, "shell", asks, asked=(("who? ", "alice"), ("what? ", "tea"))))
        assert printed.endswith("alice has tea\n")
        run.run(Block("page.md", 5, "shell", endless, until="heard", leave_running="ready"))
        assert run.run(Block("page.md", 9, "shell", "touch called\n")) == ""
        assert run.run(Block("page.md", 9, "shell", "echo ready; sleep 600\n", until="ready")).startswith("ready\n")


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
        (Block("page.md", 7, "shell", "read -p 'who? '\nfalse\n", asked=(("who? ", "alice"),)), "failed with 1"),
        (Block("page.md", 7, "shell", "echo never\n", until="ready"), "did not print ready"),
        (Block("page.md", 7, "settings", "[log.retention]\nmss = 1\n"), "did you mean log.retention.ms"),
        (Block("page.md", 7, "pipeline", "[sink]\ntopik = 'revenue'\n"), "topik"),
        (Block("page.md", 7, "spark", "spark.stop()\n"), "spark is not run here"),
        (Block("page.md", 7, "python", "print('never')\n", until="ready"), "did not print ready"),
        (Block("page.md", 7, "pytest", "def test_wrong():\n    assert False\n"), "assert False"),
    ],
    ids=lambda value: value.language if isinstance(value, Block) else None,
)
def test_a_block_that_is_wrong_fails(tmp_path: Path, block: Block, reason: str) -> None:
    with runner(tmp_path, {}, {}) as run, pytest.raises(AssertionError, match=reason) as raised:
        run.run(block)
    assert "page.md:7" in str(raised.value)
