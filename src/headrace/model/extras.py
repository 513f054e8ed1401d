"""Optional dependencies: the modules that each extra of the package installs, and the sentence where one is missing.

`require(SPARK)` before the work begins, so that nothing is started that cannot end. An import that fails in spite of
that, of a module that only some of the work needs, becomes the same sentence by `missing_extra`: the command line asks
it about every `ModuleNotFoundError`.
"""

from importlib.util import find_spec
from typing import NamedTuple

from headrace.model.errors import MissingExtra


class Extra(NamedTuple):
    """`modules` are needed by everything that needs the extra, `more_modules` by some of it."""

    name: str
    purpose: str
    modules: tuple[str, ...]
    more_modules: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        return f"this needs {self.purpose}: pip install 'headrace[{self.name}]'"


CLUSTER = Extra("cluster", "the client of etcd", ("aetcd", "grpc"))
ARCHIVE = Extra("archive", "Arrow", ("numpy", "pyarrow"), ("pyiceberg", "requests", "sqlalchemy"))
SPARK = Extra("spark", "Spark", ("pyspark", "py4j", "numpy", "pyarrow"), ("pandas", "psycopg"))
EXTRAS = (CLUSTER, ARCHIVE, SPARK)


def require(extra: Extra) -> None:
    """Raise `MissingExtra` unless the modules of `extra` are installed. Imports none of them."""
    if any(find_spec(module) is None for module in extra.modules):
        raise MissingExtra(extra.sentence)


def missing_extra(error: BaseException) -> MissingExtra | None:
    """The sentence for a failed import of an extra's module; None for any other error.

    A module of several extras is named as one of the smallest, which comes first.
    """
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    module = error.name.partition(".")[0]
    for extra in EXTRAS:
        if module in extra.modules + extra.more_modules:
            return MissingExtra(extra.sentence)
    return None
