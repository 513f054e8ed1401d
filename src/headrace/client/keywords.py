"""Misspelt keyword arguments of public calls are a `TypeError` that names the closest argument there is."""

import asyncio
import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from headrace.config.settings import did_you_mean

ClassT = TypeVar("ClassT", bound=type)


def checks_keywords(kind: ClassT) -> ClassT:
    """Class decorator: every public method and `__init__` names the closest argument when one is unknown.

    Python 3.13 suggests a name by itself, older versions do not. `help` and editors see the method as it was written.
    """
    for name, member in list(vars(kind).items()):
        if inspect.isfunction(member) and (not name.startswith("_") or name == "__init__"):
            setattr(kind, name, _checking(member))
    return kind


def _checking(function: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return function
    known = {each.name for each in parameters if each.kind is not each.POSITIONAL_ONLY and each.name != "self"}
    if not known:
        return function

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs and not kwargs.keys() <= known:
            name = next(each for each in kwargs if each not in known)
            hint = did_you_mean(name, known) or f"; there are {', '.join(sorted(known))}"
            called = type(args[0]).__name__ if args else ""
            label = called if function.__name__ == "__init__" else f"{called}.{function.__name__}"
            raise TypeError(f"{label}() has no argument {name!r}{hint}")
        return function(*args, **kwargs)

    if inspect.iscoroutinefunction(function):
        _mark_as_coroutine_function(call)
    return call


def _mark_as_coroutine_function(call: Any) -> None:
    """For mocks and frameworks that ask: an argument that does not exist is an error of the call, not of its await."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(call)
    else:
        call._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
