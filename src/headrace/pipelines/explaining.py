"""Errors as sentences: on their way into Spark without a traceback, and out of it without the stack of the JVM."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.model.errors import HeadraceError

_OURS = re.compile(r"\bheadrace(?:\.\w+)+: (?P<sentence>.+)")
_PYTHON = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Warning): (?P<sentence>.+)$", re.MULTILINE)
_ERROR_CLASS = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+\s*$")


@contextmanager
def plainly() -> Iterator[None]:
    """In a process that Spark runs: an error that is meant for a person goes to Spark without a traceback.

    Spark's own switch for that is set when there is such an error. Its process ends with it, so nothing else is hidden.
    """
    try:
        yield
    except HeadraceError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def explain_error(error: BaseException) -> str:
    """One sentence for a person. Of an error of Headrace it is the error's own, wherever Spark has put it."""
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    if "Traceback (most recent call last)" in text:
        python = _PYTHON.findall(text)
        if python:
            return str(python[-1]).strip()
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    return _SQLSTATE.sub("", _ERROR_CLASS.sub("", first)).strip()
