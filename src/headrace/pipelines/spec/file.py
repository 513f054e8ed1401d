"""Parses pipeline files. Every error has its line: `revenue.toml:3: unknown key topik in [source]; …`."""

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from headrace.config.client_connection import PROFILE_VARIABLE
from headrace.config.profiles import FILES, SECRETS, is_reference, read_profile
from headrace.config.settings import did_you_mean
from headrace.model.errors import SettingsError
from headrace.pipelines.connection_options import ConnectionOptions, connection_options
from headrace.pipelines.errors import SpecError
from headrace.pipelines.spec import model
from headrace.pipelines.spec.check import problems_of
from headrace.pipelines.spec.toml_lines import KeyLine, find_places, line_of
from headrace.pipelines.spec.toml_lines import Path as KeyPath

DEFAULT_BOOTSTRAP = "localhost:9092"

_TEXTS = ("name", "bootstrap", "checkpoint")
_SECTIONS = ("source", "sources", "transform", "sink", "sinks", "errors", "trigger", "spark", "connection")
_KNOWN = (*_TEXTS, *_SECTIONS, "steps")
_VARIABLE = re.compile(r"\$(\$?)\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_UNKNOWN_KEY = re.compile(r"Object contains unknown field `(.+?)`(?: - at `\$(.*)`)?")
_MISSING_KEY = re.compile(r"Object missing required field `(.+?)`(?: - at `\$(.*)`)?")
_WRONG = re.compile(r"(.+?)(?: - at `\$(.*)`)?")

T = TypeVar("T", bound=model.SpecSection)


class SpecFile:
    """A parsed pipeline file (`spec`); `error_at` makes errors with line numbers."""

    def __init__(
        self, file: Path, environment: Mapping[str, str] | None = None, *, bootstrap: str | None = None
    ) -> None:
        """Parse `file`. `bootstrap` overrides the one in the file."""
        self.file = file
        self._bootstrap = bootstrap
        self._environment = os.environ if environment is None else environment
        text = self._read()
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            found = re.search(r" \(at line (\d+), column \d+\)$", str(error))
            problem = str(error)[: found.start()] if found else str(error)
            raise SpecError(file, int(found[1]) if found else None, f"this is not TOML: {problem}") from None
        self._places: dict[KeyPath, KeyLine] = find_places(text)
        connection = document.get("connection")
        substituted = self._substituted(document, ())
        # Its references are resolved where a connection is made: secrets shall not be part of the pipeline.
        self.spec = self._parse(substituted if connection is None else {**substituted, "connection": connection})
        for path, problem in (*problems_of(self.spec), *_misplaced_options(self.spec)):
            raise self.error_at(path, problem)

    def error_at(self, path: KeyPath, problem: str, text_index: int | None = None) -> SpecError:
        """An error at a key; with `text_index`, at that character of the text that is its value."""
        path = self._as_written(path)
        line = line_of(self._places, path)
        if text_index is not None and (place := self._places.get(path)) is not None:
            line = place.text_line + self._value(path)[:text_index].count("\n")
        return SpecError(self.file, line, problem)

    def _as_written(self, path: KeyPath) -> KeyPath:
        """A key as the file has it: a single source, step or sink may be in [source], [transform] or [sink]."""
        heads: dict[tuple[str | int, ...], KeyPath] = {
            ("sources", model.ONLY_SOURCE): ("source",),
            ("steps", 0): ("transform",),
            ("sinks", model.ONLY_SINK): ("sink",),
        }
        short = heads.get(path[:2])
        if short is not None and path[:2] not in self._places and short in self._places:
            return (*short, *path[2:])
        return path

    def _value(self, path: KeyPath) -> str:
        value: Any = self._document
        for key in path:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                return ""
        return value if isinstance(value, str) else ""

    def _read(self) -> str:
        try:
            return self.file.read_text("utf-8")
        except OSError as error:
            raise SpecError(self.file, None, f"cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise SpecError(self.file, None, "is not a text file in UTF-8") from None

    def _substituted(self, value: Any, path: KeyPath) -> Any:
        """Replace `${NAME}` and `${NAME:-default}` from the environment; `$${` is an escaped `${`."""
        if isinstance(value, dict):
            return {key: self._substituted(each, (*path, key)) for key, each in value.items()}
        if isinstance(value, list):
            return [self._substituted(each, (*path, number)) for number, each in enumerate(value)]
        return _VARIABLE.sub(self._variable(path), value) if isinstance(value, str) else value

    def _variable(self, path: KeyPath) -> Callable[[re.Match[str]], str]:
        def replaced(found: re.Match[str]) -> str:
            if found[1]:
                return found[0][1:]
            value = self._environment.get(found[2], found[3])
            if value is None:
                line = line_of(self._places, path)
                raise SpecError(self.file, line, f"${{{found[2]}}} is not set: export {found[2]} and try again")
            return value

        return replaced

    def _parse(self, document: dict[str, Any]) -> model.Spec:
        self._document = document
        for key, value in document.items():
            if key not in _KNOWN:
                raise self._wrong((key,), f"unknown section or key {key}{did_you_mean(key, _KNOWN)}")
            if key in _TEXTS and not isinstance(value, str):
                raise self._wrong((key,), f"{key} must be a text")
            if key in _SECTIONS and not isinstance(value, dict):
                raise self._wrong((key,), f"{key} is a section: write [{key}]")
        connection = self._connection(document)
        return model.Spec(
            file=self.file,
            name=document.get("name", self.file.stem),
            bootstrap=self._bootstrap
            or document.get("bootstrap")
            or self._environment.get("HEADRACE_BOOTSTRAP")
            or self._profile_bootstrap(connection)
            or DEFAULT_BOOTSTRAP,
            connection=connection,
            sources=self._several(model.Source, document, "source", model.ONLY_SOURCE),
            steps=self._steps(document, self._section(model.Step, document.get("transform", {}), ("transform",))),
            sinks=self._several(model.Sink, document, "sink", model.ONLY_SINK),
            errors=self._section(model.Errors, document.get("errors", {}), ("errors",)),
            trigger=self._section(model.Trigger, document.get("trigger", {}), ("trigger",)),
            spark=self._section(model.Spark, document.get("spark", {}), ("spark",)),
            checkpoint=document.get("checkpoint"),
        )

    def _connection(self, document: dict[str, Any]) -> ConnectionOptions:
        section = self._section(model.BrokerLogin, document.get("connection", {}), ("connection",))
        found: dict[str, str] = {}
        for name, value in msgspec.structs.asdict(section).items():
            if value is None:
                continue
            if name in SECRETS and not is_reference(str(value)):
                problem = f'a secret is not written into a pipeline: write {name} = "${{NAME}}", and export NAME'
                raise self._wrong(("connection", name), problem)
            text = str(value).lower() if isinstance(value, bool) else str(value)
            is_relative = name in FILES and not text.startswith(("$", "/", "~"))
            found[name] = str((self.file.parent / text).absolute()) if is_relative else text
        return tuple(sorted(found.items()))

    def _profile_bootstrap(self, connection: ConnectionOptions) -> str | None:
        name = dict(connection).get("profile") or self._environment.get(PROFILE_VARIABLE)
        if not name:
            return None
        try:
            return str(read_profile(name, self._environment).get("bootstrap", "")) or None
        except SettingsError as error:
            raise self._wrong(("connection", "profile"), str(error)) from None

    def _several(self, kind: type[T], document: dict[str, Any], one: str, default: str) -> dict[str, T]:
        many = f"{one}s"
        if one in document and many in document:
            raise self._wrong((many,), f"write either [{one}] or [{many}.<name>], not both")
        if one in document:
            return {default: self._section(kind, document[one], (one,))}
        found = document.get(many, {})
        if not found:
            raise SpecError(self.file, None, f"there is no [{one}]: a pipeline needs at least one")
        return {name: self._section(kind, value, (many, name)) for name, value in found.items()}

    def _steps(self, document: dict[str, Any], transform: model.Step) -> list[model.Step]:
        if "steps" not in document:
            return [transform] if "transform" in document else []
        if "transform" in document:
            raise self._wrong(("steps",), "write either [transform] or [[steps]], not both")
        if not isinstance(document["steps"], list):
            raise self._wrong(("steps",), "steps is a list: write [[steps]] before each step")
        return [self._section(model.Step, value, ("steps", at)) for at, value in enumerate(document["steps"])]

    def _section(self, kind: type[T], value: Any, path: KeyPath) -> T:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise self._explained(kind, str(error), path) from None

    def _explained(self, kind: type[model.SpecSection], message: str, path: KeyPath) -> SpecError:
        title = f"[{'.'.join(map(str, path))}]"
        for pattern, words in ((_UNKNOWN_KEY, "unknown key {} in {}{}"), (_MISSING_KEY, "{} is missing in {}{}")):
            if (found := pattern.fullmatch(message)) is not None:
                inner = _inner(found[2])
                fields = _fields(kind, inner)
                hint = did_you_mean(found[1], fields) if pattern is _UNKNOWN_KEY else ""
                where = f"{title} {'.'.join(map(str, inner))}".rstrip()
                return self._wrong((*path, *inner, found[1]), words.format(found[1], where, hint))
        found = _WRONG.fullmatch(message)
        inner = _inner(found[2]) if found else ()
        problem = _plain(found[1] if found else message)
        if problem.startswith("invalid enum value") and len(inner) == 1:
            allowed = _choices(kind, str(inner[0]))
            value = problem.removeprefix("invalid enum value ").strip("'")
            problem = f"{value} is not one of {', '.join(allowed)}{did_you_mean(value, allowed)}"
        return self._wrong((*path, *inner), f"{'.'.join(map(str, inner)) or title}: {problem}")

    def _wrong(self, path: KeyPath, problem: str) -> SpecError:
        return SpecError(self.file, line_of(self._places, path), problem)


def _misplaced_options(spec: model.Spec) -> Iterator[tuple[KeyPath, str]]:
    """Options of the connection: a value there is substituted, and stored with the state of the pipeline."""
    parts: list[tuple[KeyPath, Mapping[str, object]]] = [
        *((("sources", name), each.options) for name, each in spec.streams.items()),
        *((("sinks", name), each.options) for name, each in spec.sinks.items() if each.topic is not None),
    ]
    for path, options in parts:
        for name in options:
            if connection_options({name: ""}):
                yield (*path, "options", name), f"{name} belongs into [connection], which all brokers share"


def _inner(text: str | None) -> KeyPath:
    """msgspec's `.deduplicate.by[0]` as a path; msgspec omits the keys of tables with arbitrary names."""
    keys: list[str | int] = []
    for name, number in re.findall(r"\.([A-Za-z0-9_-]+)|\[(\d+)\]", text or ""):
        keys.append(name or int(number))
    return tuple(keys)


def _fields(kind: type[model.SpecSection], inner: KeyPath) -> list[str]:
    names = [each.encode_name for each in msgspec.structs.fields(kind)]
    if inner == ("deduplicate",):
        return [each.encode_name for each in msgspec.structs.fields(model.Deduplicate)]
    return names


def _choices(kind: type[model.SpecSection], name: str) -> list[str]:
    """The allowed values of a key that has a fixed set of them."""
    (annotation,) = (each.type for each in msgspec.structs.fields(kind) if each.encode_name == name)
    found = [annotation, *get_args(annotation)]
    return [str(value) for each in found if get_origin(each) is Literal for value in get_args(each)]


_NAMES = {"str": "a text", "int": "a whole number", "float": "a number", "bool": "true or false", "array": "a list"}
_NAMES |= {"object": "a table", "null": "nothing"}


def _plain(problem: str) -> str:
    """msgspec's `Expected `str`, got `int`` with the names of TOML types."""
    text = re.sub(r"`([\w| ]+)`", lambda found: _in_words(found[1]), problem)
    return text[:1].lower() + text[1:]


def _in_words(types: str) -> str:
    return " or ".join(_NAMES.get(each, each) for each in types.split(" | ") if each != "null" or types == "null")
