"""The work of `headrace schema`, through the REST API of the registry."""

import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from difflib import unified_diff
from pathlib import Path
from typing import Any, TextIO, cast
from urllib.parse import quote, urlencode

import typer

from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.http_api import HttpApi
from headrace.cli.output import print_json, say, table
from headrace.cli.schema.transfer import export_schemas, import_schemas, listed, read_records

_TYPES = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
_MAX_FILE_BYTES = 1024 * 1024


def register(
    bootstrap: str,
    http: str,
    subject: str,
    file: Path,
    type_: str,
    references: Sequence[str],
    *,
    normalizes: bool,
    as_json: bool,
) -> None:
    api = _registry(bootstrap, http)
    query = "?normalize=true" if normalizes else ""
    found = api.post(f"/subjects/{_quoted(subject)}/versions{query}", _body(file, type_, references))
    if as_json:
        print_json({"subject": subject, "version": found["version"], "id": found["id"]})
    else:
        print(f"{subject} version {found['version']} has the id {found['id']}")


def check(
    bootstrap: str, http: str, subject: str, file: Path, type_: str, references: Sequence[str], *, as_json: bool
) -> int:
    """Print whether the schema could be registered; the exit code."""
    api = _registry(bootstrap, http)
    path = f"/compatibility/subjects/{_quoted(subject)}/versions?verbose=true"
    found = api.post(path, _body(file, type_, references))
    if as_json:
        print_json(found)
    elif found["is_compatible"]:
        print(f"{file} can be registered for {subject}")
    else:
        print(f"{file} is incompatible with {subject}:")
        for message in found["messages"]:
            print(f"  {message}")
    return int(not found["is_compatible"])


def show_subjects(bootstrap: str, http: str, prefix: str, *, deleted: bool, as_json: bool) -> None:
    api = _registry(bootstrap, http)
    query = {"latestOnly": "true", "subjectPrefix": prefix, "deleted": str(deleted).lower()}
    found = list(listed(api, f"/schemas?{urlencode(query)}"))
    if as_json:
        print_json(found)
    elif not found:
        say("no subject" + (f" begins with {prefix}" if prefix else " yet: headrace schema register SUBJECT FILE"))
    else:
        rows = [(each["subject"], each["version"], each["id"], each.get("schemaType", "AVRO")) for each in found]
        table(None, [("SUBJECT", "left"), ("VERSION", "right"), ("ID", "right"), ("TYPE", "left")], rows)


def show_schema(bootstrap: str, http: str, subject: str, version: str, *, as_json: bool) -> None:
    found = _version(_registry(bootstrap, http), subject, version)
    if as_json:
        print_json(found)
    else:
        print(_pretty(found))


def show_diff(bootstrap: str, http: str, subject: str, first: str, second: str) -> None:
    api = _registry(bootstrap, http)
    before, after = (_pretty(_version(api, subject, each, is_id=False)).splitlines() for each in (first, second))
    lines = list(unified_diff(before, after, f"{subject} {first}", f"{subject} {second}", lineterm=""))
    if not lines:
        say("no difference")
    for line in lines:
        print(_coloured(line))


def delete(bootstrap: str, http: str, subject: str, version: str, *, permanent: bool, yes: bool) -> None:
    what = f"version {version} of {subject}" if version else f"all versions of {subject}"
    if permanent and not yes:
        typer.confirm(f"Delete {what} for good? Messages written with it cannot be decoded any more.", abort=True)
    api = _registry(bootstrap, http)
    path = f"/subjects/{_quoted(subject)}" + (f"/versions/{_quoted(version)}" if version else "")
    api.delete(path + ("?permanent=true" if permanent else ""))
    print(f"Deleted {what}{' for good' if permanent else ''}")


def change_config(bootstrap: str, http: str, subject: str, level: str, *, unset: bool) -> None:
    _change(bootstrap, http, "config", subject, {"compatibility": level.upper()} if level else None, unset=unset)


def change_mode(bootstrap: str, http: str, subject: str, mode: str, *, unset: bool, force: bool) -> None:
    body = {"mode": mode.upper()} if mode else None
    _change(bootstrap, http, "mode", subject, body, unset=unset, query="?force=true" if force else "")


def export(bootstrap: str, http: str, file: Path) -> None:
    with _opened(file, "w") as sink:
        count = export_schemas(_registry(bootstrap, http), sink)
    say(f"{count} versions exported")


def import_records(bootstrap: str, http: str, file: Path, *, force: bool) -> None:
    with _opened(file, "r") as source:
        machine = read_records(source)
    count = import_schemas(_registry(bootstrap, http), machine, force=force)
    print(f"{count} versions imported")


def _opened(file: Path, mode: str) -> AbstractContextManager[TextIO]:
    """A file, or standard input or output for `-`."""
    if str(file) == "-":
        return nullcontext(sys.stdin if mode == "r" else sys.stdout)
    try:
        return cast(TextIO, file.open(mode, encoding="utf-8"))
    except OSError as error:
        raise CommandFailed(f"{file} cannot be opened: {error.strerror}") from None


def _change(
    bootstrap: str, http: str, kind: str, subject: str, body: dict[str, str] | None, *, unset: bool, query: str = ""
) -> None:
    if body and unset:
        raise BadArgument("--set and --unset are given: choose one")
    api = _registry(bootstrap, http)
    path = f"/{kind}" + (f"/{_quoted(subject)}" if subject else "")
    if body:
        api.put(path + query, body)
    elif unset and kind == "config":
        api.put(path, {"compatibility": None})
    elif unset:
        api.delete(path)
    found = api.get(f"{path}?defaultToGlobal=true")
    print(found.get("mode") or found.get("compatibilityLevel"))


def _registry(bootstrap: str, http: str) -> HttpApi:
    return HttpApi(bootstrap, http, prefix="/registry")


def _version(api: HttpApi, subject: str, version: str, *, is_id: bool = True) -> dict[str, Any]:
    if is_id and subject.isdecimal():
        found: dict[str, Any] = api.get(f"/schemas/ids/{subject}")
    else:
        found = api.get(f"/subjects/{_quoted(subject)}/versions/{_quoted(version)}")
    return found


def _pretty(found: dict[str, Any]) -> str:
    text = str(found["schema"])
    if found.get("schemaType", "AVRO") == "PROTOBUF":
        return text.rstrip()
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def _coloured(line: str) -> str:
    if not sys.stdout.isatty() or line.startswith(("---", "+++")):
        return line
    colour = {"+": "\033[32m", "-": "\033[31m", "@": "\033[36m"}.get(line[:1])
    return f"{colour}{line}\033[0m" if colour else line


def _body(file: Path, type_: str, references: Sequence[str]) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": _text(file), "schemaType": _type(file, type_)}
    if references:
        body["references"] = [_reference(each) for each in references]
    return body


def _text(file: Path) -> str:
    try:
        data = sys.stdin.buffer.read(_MAX_FILE_BYTES + 1) if str(file) == "-" else file.read_bytes()
        text = data.decode()
    except OSError as error:
        raise CommandFailed(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandFailed(f"{file} is not UTF-8 text") from None
    if len(data) > _MAX_FILE_BYTES:
        raise CommandFailed(f"{file} is longer than {_MAX_FILE_BYTES} bytes")
    return text


def _type(file: Path, given: str) -> str:
    if given:
        if given.upper() not in _TYPES.values():
            raise BadArgument(f"--type {given} is none of {', '.join(_TYPES.values())}")
        return given.upper()
    if file.suffix not in _TYPES:
        raise BadArgument(f"the type of {file} is not clear: give --type AVRO, JSON or PROTOBUF")
    return _TYPES[file.suffix]


def _reference(text: str) -> dict[str, Any]:
    name, equals, rest = text.partition("=")
    subject, colon, version = rest.rpartition(":")
    if not (equals and colon and name and subject and version.isdecimal()):
        raise BadArgument(f"--reference {text} is not NAME=SUBJECT:VERSION")
    return {"name": name, "subject": subject, "version": int(version)}


def _quoted(text: str) -> str:
    return quote(text, safe="")
