"""Spark's errors as one sentence each, and ours without a Python traceback. The full error is in the log."""

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException

from headrace.model.errors import HeadraceError

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]*)\] ?")
_STATE = re.compile(r"\.?\s*SQLSTATE: [A-Z0-9]{5}")
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+|$)", re.DOTALL)
_PYTHON = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|\w+))(?:: (.*))?$")
_FRAME = re.compile(r"\n\s*(?:at [\w.$/]+\(|\.\.\. \d+ more)")
_OURS_ALONE = re.compile(r"\bheadrace(?:\.\w+)+: (.+)")
"""A Headrace error that Spark reports without a traceback: the data source raises it under `hide_traceback`."""
_QUERY = "\n=== Streaming Query ==="
"""Begins the part of a message that has the state and the plan of a query."""
_MAX_CHARS = 600

_WORDS = {
    "UNRESOLVED_COLUMN.WITH_SUGGESTION": "there is no column {objectName}; the columns are {proposal}",
    "UNRESOLVED_COLUMN.WITHOUT_SUGGESTION": "there is no column {objectName}",
    "UNRESOLVED_FIELD.WITH_SUGGESTION": "there is no field {fieldName}; the fields are {proposal}",
    "TABLE_OR_VIEW_NOT_FOUND": "there is no source, step or table {relationName}",
    "UNRESOLVED_ROUTINE": "there is no function {routineName}",
}


def mute_error_loggers() -> None:
    """Keep PySpark from logging each error with the JVM's stack; the error is raised as well."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def hide_traceback() -> Iterator[None]:
    """In a Python process that Spark started: let a `HeadraceError` reach Spark without a traceback.

    Sets Spark's own environment variable for this when the error occurs. The process ends with that error, so no other
    traceback is hidden.
    """
    try:
        yield
    except HeadraceError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def explain_error(error: BaseException) -> str:
    """The cause of a failure in one sentence, without error classes, SQL states, query plans and stack traces."""
    if not isinstance(error, PySparkException):
        return _from_text(str(error)) or type(error).__name__
    condition = error.getCondition() or ""
    parameters: dict[str, Any] = error.getMessageParameters() or {}
    if condition in _WORDS:
        plain = {key: str(value).replace("`", "") for key, value in parameters.items()}
        return _WORDS[condition].format(**plain)
    # Which of these holds the cause depends on the kind of error.
    texts = (parameters.get("message") if condition == "STREAM_FAILED" else "", error.getMessage(), str(error))
    return next((found for text in texts if text and (found := _from_text(str(text)))), type(error).__name__)


def _from_text(text: str) -> str:
    text = text.split(_QUERY, 1)[0]
    if (raised := _RAISED.search(text)) is not None:
        return _one_line(raised[1])
    if "Traceback (most recent call last)" in text:
        return _last_of_traceback(text)
    if ours := _OURS_ALONE.findall(text):
        return _one_line(ours[-1])
    text = _FRAME.split(text, maxsplit=1)[0]
    text = re.split(r"\n\s*(?:===? |JVM stacktrace|[+'!~]- |['~!]*[A-Z]\w+ \[)", text, maxsplit=1)[0]
    return _one_line(_STATE.sub("", _CONDITION.sub("", text)))


def _last_of_traceback(text: str) -> str:
    """The last error in a traceback of a Python worker or a `foreachBatch`; a Headrace error without its class."""
    found = ""
    for line in text[text.index("Traceback (most recent call last)") :].split("\n"):
        match = _PYTHON.match(line.strip())
        if match is not None and not line.startswith(" "):
            is_known = line.startswith(("headrace.", "pyspark.errors."))
            found = (match[2] or match[1]) if is_known else line.strip()
        elif _FRAME.match("\n" + line):
            break
    return _one_line(_STATE.sub("", _CONDITION.sub("", found or text, count=1)))


def _one_line(text: str) -> str:
    return " ".join(text.split()).rstrip(".;")[:_MAX_CHARS]
