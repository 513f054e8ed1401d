"""The public names of Headrace and the examples in their docstrings, as blocks that `tests/snippets.py` runs.

An example is a fenced block in the docstring of a public class or function, or of a public method of such a class.
`SETUP` is run before each of them, so `client` and `emails` are there.
"""

import importlib
import inspect
from collections.abc import Iterator
from typing import NamedTuple

from .snippets import Block, collect

MODULES = ("headrace", "headrace.aio", "headrace.testing", "pyspark_headrace")
SPARK = "pyspark_headrace"

SETUP = """
from headrace import Client
client = Client("localhost:9092")
client.topics.create("orders", partitions=3, exist_ok=True)
client.publish("orders", {"item": "tea"}, key="alice")
emails = client.queue("emails").create(max_receives=5, dead_letter="emails-dead")
emails.send({"to": "alice@example.org"})
"""
"""What the examples take for granted; docs/api/README.md says so to readers."""


class PublicName(NamedTuple):
    name: str
    target: object

    @property
    def docstring(self) -> str:
        return inspect.getdoc(self.target) or ""

    def blocks(self) -> list[Block]:
        """The examples, those of the class first."""
        found = [block for name, text in self.docstrings() for block in collect(name, text)]
        if self.name.startswith(SPARK):
            return [block._replace(language="spark") for block in found]
        return found

    def docstrings(self) -> Iterator[tuple[str, str]]:
        """The name and the docstring of the object and of its public methods."""
        yield self.name, self.docstring
        if inspect.isclass(self.target) and not self.name.startswith(SPARK):
            for name, member in inspect.getmembers(self.target):
                if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                    yield f"{self.name}.{name}", inspect.getdoc(member) or ""


def public_names(*modules: str) -> list[PublicName]:
    return [
        PublicName(f"{module}.{name}", getattr(importlib.import_module(module), name))
        for module in modules or MODULES
        for name in importlib.import_module(module).__all__
    ]
