"""Finds the client of an application by its name, `module:attribute`, with every error in words."""

import importlib
import os
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace.client.aio import Client as AioClient
from headrace.client.base import ClientBase, parts_of
from headrace.client.client import Client
from headrace.client.errors import ClientError

_FRAMES = 8
"""Of a traceback, the innermost."""

_LOADERS = (__file__, importlib.__file__)
"""Files whose lines say nothing about the application."""

AnyClient = Client | AioClient


class AppError(ClientError):
    """An application that cannot be run. The message says why; it may have several lines."""

    def __init__(self, message: str, files: list[str] | None = None) -> None:
        super().__init__(message)
        self.files = files or []
        """Where the error came from."""


def load_client(target: str) -> AnyClient:
    """The client that `module:attribute` names: one itself, or what a function without arguments returns."""
    module_name, colon, attribute = target.partition(":")
    if not colon or not module_name or not attribute:
        raise AppError(f"{target} is not MODULE:ATTRIBUTE: the client of app.py is app:client")
    module = _import(module_name)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise AppError(f"{module_name} has no {attribute}{_suggestion(module, attribute)}")
        found = getattr(found, part)
    if not isinstance(found, ClientBase) and callable(found):
        try:
            found = found()
        except Exception as error:
            raise _failure(f"{target}() failed", error) from None
    if not isinstance(found, Client | AioClient):
        raise AppError(
            f"{target} is {_kind(found)}: name a headrace.Client, a headrace.aio.Client, or a function that returns one"
            f"{_suggestion(module, attribute)}"
        )
    parts = parts_of(found)
    if not parts.handlers and not parts.workers:
        raise AppError(
            f"{target} has nothing to run: register functions with @client.handler(TOPIC, group=GROUP) or "
            "@client.queue(NAME).worker() before the end of the module, or import the modules that do"
        )
    return found


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            here = sorted(path.stem for path in Path.cwd().glob("*.py"))
            near = get_close_matches(name, here, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise AppError(
                f"there is no module {error.name} in {Path.cwd()} or among the installed ones{hint}"
            ) from None
        raise _failure(f"{name} cannot be imported", error) from None
    except (Exception, SystemExit) as error:
        raise _failure(f"{name} cannot be imported", error) from None


def _failure(what: str, error: BaseException) -> AppError:
    """The error with the part of its traceback that is in the application."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not each.filename.startswith("<frozen") and each.filename not in _LOADERS]
    lines = traceback.format_list(own[-_FRAMES:]) + traceback.format_exception_only(error)
    files = [each.filename for each in own]
    if isinstance(error, SyntaxError) and error.filename:
        files.append(error.filename)
    return AppError(f"{what}:\n{''.join(lines).rstrip()}", own_files(files))


def _kind(found: object) -> str:
    return "a module" if isinstance(found, ModuleType) else f"of the type {type(found).__name__}"


def _suggestion(module: ModuleType, attribute: str) -> str:
    clients = sorted(name for name, value in vars(module).items() if isinstance(value, ClientBase))
    if clients:
        return f": did you mean {module.__name__}:{clients[0]}?"
    near = get_close_matches(attribute, [each for each in vars(module) if not each.startswith("_")], 1)
    return f": did you mean {module.__name__}:{near[0]}?" if near else ""


def imported_files() -> list[str]:
    """The files of the imported modules under the current folder."""
    return own_files([getattr(each, "__file__", None) or "" for each in list(sys.modules.values())])


def own_files(files: list[str]) -> list[str]:
    """Those under the current folder, without installed packages."""
    here = os.getcwd() + os.sep
    found = {os.path.abspath(each) for each in files if each.endswith(".py")}
    return sorted(each for each in found if each.startswith(here) and "site-packages" not in each)
