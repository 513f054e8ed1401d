"""The code of docs/queues.md, for the task queue frameworks that it is about. They have no other package of ours."""

import os
import re
from pathlib import Path

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "queues.md"


def page_code(first_line: str) -> str:
    """The block of Python that begins with this line, with the address of the broker that is checked."""
    blocks = re.findall(r"^```python\n(.*?)^```$", _PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    (found,) = [block for block in blocks if block.startswith(f"{first_line}\n")]
    return found.replace("localhost:9324", f"{os.environ['SQS_HOST']}:{os.environ['SQS_PORT']}")
