"""`headrace schema export` and `import`: all schemas as the records of `_schemas`, one line each: key, tab, value.

It is what Kafka's console consumer and kcat print of the topic of Confluent's registry, so that an existing registry is
taken over with its ids and versions. Importing goes through the REST API.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TextIO
from urllib.parse import quote

import msgspec

from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.http_api import HttpApi
from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import CorruptBatch
from headrace.schemas.machine import SchemaMachine
from headrace.schemas.stored import (
    StoredConfig,
    StoredMode,
    StoredSchema,
    config_record,
    mode_record,
    schema_record,
)

PAGE = 1000
MAX_LINE_CHARS = 4 * 1024 * 1024
_NOTHING = "null"


def export_schemas(api: HttpApi, sink: TextIO) -> int:
    """Write every version, deleted ones included, then settings and modes; the number of versions."""
    subjects: dict[str, None] = {}
    count = 0
    for stored in _versions(api):
        sink.write(_line(schema_record(stored)))
        subjects[stored.subject] = None
        count += 1
    for subject in (None, *subjects):
        path = "" if subject is None else f"/{quote(subject, safe='')}"
        config, mode = _optional(api, f"/config{path}"), _optional(api, f"/mode{path}")
        if config is not None:
            sink.write(_line(config_record(subject, msgspec.convert({**config, "subject": subject}, StoredConfig))))
        if mode is not None and mode["mode"] != "READWRITE":
            sink.write(_line(mode_record(subject, StoredMode(mode["mode"], subject))))
    return count


def _versions(api: HttpApi) -> Iterator[StoredSchema]:
    offset = 0
    while True:
        page: list[dict[str, Any]] = api.get(f"/schemas?deleted=true&offset={offset}&limit={PAGE}")
        for each in page:
            yield msgspec.convert({**each, "md5": each.get("guid")}, StoredSchema)
        if len(page) < PAGE:
            return
        offset += PAGE


def _optional(api: HttpApi, path: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = api.get(path)
    except CommandFailed as error:
        if "does not have subject-level" not in str(error):
            raise
        return None
    return found


def _line(record: InternalRecord) -> str:
    return f"{record.key.decode()}\t{_NOTHING if record.value is None else record.value.decode()}\n"


def read_records(lines: Iterable[str]) -> SchemaMachine:
    """The state that records lead to, later ones in place of earlier ones."""
    machine = SchemaMachine()
    for number, line in enumerate(lines, 1):
        key, tab, value = line.rstrip("\r\n").partition("\t")
        if not key:
            continue
        if not tab or len(line) > MAX_LINE_CHARS:
            raise BadArgument(f"line {number} is not a key and a value with a tab between them")
        try:
            machine.replay(InternalRecord(key.encode(), None if value in ("", _NOTHING) else value.encode()), -1)
        except CorruptBatch as error:
            raise BadArgument(f"line {number}: {error}") from None
    return machine


def import_schemas(api: HttpApi, machine: SchemaMachine, *, force: bool) -> int:
    """Register every version with its id, then set settings and modes; the number of versions."""
    versions = [each for subject in machine.subjects() for each in machine.versions(subject, deleted=True).values()]
    for subject in machine.subjects():
        api.put(f"/mode/{_quoted(subject)}{'?force=true' if force else ''}", {"mode": "IMPORT"})
    _register_all(api, sorted(versions, key=lambda each: (each.id, each.subject, each.version)))
    for each in versions:
        if each.deleted:
            _optional_delete(api, f"/subjects/{_quoted(each.subject)}/versions/{each.version}")
    for scope in (None, *machine.subjects()):
        _set_settings(api, machine, scope)
    return len(versions)


def _register_all(api: HttpApi, pending: list[StoredSchema]) -> None:
    """Register schemas, each after those that it refers to."""
    while pending:
        left, refusal = [], None
        for each in pending:
            try:
                api.post(f"/subjects/{_quoted(each.subject)}/versions", _body(each))
            except CommandFailed as error:
                left.append(each)
                refusal = error
        if len(left) == len(pending):
            first = left[0]
            raise CommandFailed(
                f"{len(left)} versions cannot be imported, such as version {first.version} of {first.subject} with the "
                f"id {first.id}: {refusal}"
            )
        pending = left


def _body(schema: StoredSchema) -> dict[str, Any]:
    body = msgspec.to_builtins(schema)
    return {key: value for key, value in body.items() if key not in ("subject", "md5", "deleted")}


def _set_settings(api: HttpApi, machine: SchemaMachine, scope: str | None) -> None:
    path = "" if scope is None else f"/{_quoted(scope)}"
    config, mode = machine.config(scope), machine.mode(scope)
    if config is not None:
        given = {key: value for key, value in msgspec.to_builtins(config).items() if key != "subject"}
        level = given.pop("compatibilityLevel", None)
        api.put(f"/config{path}", {**given, **({"compatibility": level} if level else {})})
    if mode is not None:
        api.put(f"/mode{path}?force=true", {"mode": mode})
    elif scope is not None:
        api.delete(f"/mode{path}")


def _optional_delete(api: HttpApi, path: str) -> None:
    """Delete a version; it is deleted already when the import is repeated."""
    try:
        api.delete(path)
    except CommandFailed as error:
        if "was soft deleted" not in str(error):
            raise


def _quoted(text: str) -> str:
    return quote(text, safe="")
