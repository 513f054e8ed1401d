"""Errors as sentences: on their way into Spark without a traceback, and out of it without the stack of the JVM."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.model.errors import HeadraceError
from headrace.pipelines.spark_errors import sentence as explain_error

__all__ = ["explain_error", "plainly"]


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
