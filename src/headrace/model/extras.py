"""Optional dependencies: the modules that each extra of the package installs, and the error when one is missing.

Call `require(SPARK)` before the work starts, so that it does not fail halfway. An import that still fails, of a module
that only some of the work needs, becomes the same error by `missing_extra`: the command line calls it for every
`ModuleNotFoundError`.
"""

from importlib.util import find_spec
from typing import NamedTuple

from headrace.model.errors import MissingExtra


class Extra(NamedTuple):
    """An extra of the package. Everything that uses it needs `modules`, some of it `more_modules`, too."""

    name: str
    purpose: str
    modules: tuple[str, ...]
    more_modules: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        return f"this needs {self.purpose}: pip install 'headrace[{self.name}]'"


CLUSTER = Extra("cluster", "the etcd client", ("aetcd", "grpc"))
ARCHIVE = Extra("archive", "Arrow", ("numpy", "pyarrow"), ("pyiceberg", "requests", "sqlalchemy"))
SPARK = Extra("spark", "Spark", ("pyspark", "py4j", "numpy", "pyarrow"), ("pandas", "psycopg"))
OTEL = Extra("otel", "OpenTelemetry", ("opentelemetry",))
EXTRAS = (CLUSTER, ARCHIVE, SPARK, OTEL)


def require(extra: Extra) -> None:
    """Raise `MissingExtra` unless the modules of `extra` are installed. Imports none of them."""
    if any(find_spec(module) is None for module in extra.modules):
        raise MissingExtra(extra.sentence)


def missing_extra(error: BaseException) -> MissingExtra | None:
    """The error for a failed import of an extra's module; None for any other exception.

    A module of several extras is attributed to the smallest, which comes first.
    """
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    module = error.name.partition(".")[0]
    for extra in EXTRAS:
        if module in extra.modules + extra.more_modules:
            return MissingExtra(extra.sentence)
    return None
