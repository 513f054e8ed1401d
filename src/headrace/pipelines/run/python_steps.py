"""Steps in Python: `python = "revenue.py:transform"`.

The names of the function's parameters select DataFrames: a source, an earlier step, or `spark` for the session. A
single parameter with any other name gets the last step or source. The function returns a DataFrame.
"""

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.errors import SpecError
from headrace.pipelines.spark_errors import explain_error
from headrace.pipelines.spec.check import split_python
from headrace.pipelines.spec.file import SpecFile


def call_function(spark: SparkSession, file: SpecFile, at: int, views: Mapping[str, DataFrame]) -> DataFrame:
    """Call the function of a step. An error in it is reported with the function's file and line."""
    path = ("steps", at, "python")
    where, name = split_python(file.spec.steps[at].python or "")
    script = (file.spec.folder / where).resolve()
    function = _function(file, path, script, name)
    try:
        made = function(**_arguments(file, path, function, spark, views))
    except SpecError:
        raise
    except Exception as error:
        line = next((each.lineno for each in reversed(_frames(error)) if Path(each.filename) == script), None)
        kind = "" if isinstance(error, PySparkException) else f"{type(error).__name__}: "
        raise SpecError(script, line, f"{kind}{explain_error(error)}") from error
    if not isinstance(made, DataFrame):
        raise file.error_at(path, f"{name} returned {type(made).__name__}; it has to return a DataFrame")
    return made


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return [*traceback.extract_tb(error.__traceback__)]


def _function(file: SpecFile, path: tuple[str | int, ...], script: Path, name: str) -> Callable[..., Any]:
    if not script.is_file():
        raise file.error_at(path, f"there is no file {script}")
    module = _load(script)
    function = getattr(module, name, None)
    if not callable(function):
        raise file.error_at(path, f"{script.name} has no function {name}")
    return function  # type: ignore[no-any-return]


def _load(script: Path) -> ModuleType:
    """Import a file from outside the search path; pickled by value, so that workers do not need the file."""
    spec = importlib.util.spec_from_file_location(f"headrace_pipeline_{script.stem}", script)
    if spec is None or spec.loader is None:
        raise SpecError(script, None, "cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise SpecError(script, error.lineno, f"this is not Python: {error.msg}") from None
    except Exception as error:
        line = next((each.lineno for each in reversed(_frames(error)) if Path(each.filename) == script), None)
        raise SpecError(script, line, f"{type(error).__name__}: {error}") from error
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module


def _arguments(
    file: SpecFile,
    path: tuple[str | int, ...],
    function: Callable[..., Any],
    spark: SparkSession,
    views: Mapping[str, DataFrame],
) -> dict[str, Any]:
    known: dict[str, Any] = {**views, "spark": spark}
    names = [name for name, each in inspect.signature(function).parameters.items() if each.default is each.empty]
    strange = [name for name in names if name not in known]
    if len(strange) == 1 and len([name for name in names if name in views]) == 0:
        return {**{name: known[name] for name in names if name in known}, strange[0]: [*views.values()][-1]}
    if strange:
        what = f"asks for {', '.join(strange)}; there are {', '.join(known)}"
        raise file.error_at(path, f"{function.__name__} {what}")
    return {name: known[name] for name in names}
