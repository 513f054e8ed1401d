"""The page on security has the permissions that the handlers declare."""

import re
from pathlib import Path

import headrace.kafka.handlers  # noqa: F401  (registers the handlers)
from headrace.kafka.dispatch import APIS
from headrace.protocol.codec import api_name

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def test_the_table_of_permissions_is_that_of_the_handlers() -> None:
    rows = re.findall(r"^\| (\w+) \((\d+)\) \| (.+) \|$", PAGE.read_text(), flags=re.MULTILINE)
    declared = [(api_name(key), str(key), ", ".join(map(str, APIS[key].needs)) or "nothing") for key in sorted(APIS)]
    assert rows == declared
