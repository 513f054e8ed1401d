"""`headrace schema export` and `import`: all schemas as the records of `_schemas`, one line each: key, tab, value.

It is what Kafka's console consumer and kcat print of the topic of Confluent's registry, so that an existing registry is
taken over with its ids and versions. Importing goes through the REST API.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO
from urllib.parse import quote

import msgspec

from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.http_api import HttpApi
from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import CorruptBatch
from headrace.schemas.machine import SchemaMachine
from headrace.schemas.stored import StoredHighestIds, StoredSchema, highest_ids_record, schema_record

PAGE = 1000
MAX_LINE_CHARS = 4 * 1024 * 1024
_NOTHING = "null"
_TOMBSTONES = ("", _NOTHING, "NULL")
"""What tools print for a record without a value; kcat with -Z prints NULL."""


def export_schemas(api: HttpApi, sink: TextIO) -> int:
    """Write every version, deleted ones included, then settings, modes and the highest ids; the number of versions."""
    count = 0
    for each in listed(api, "/schemas?deleted=true"):
        count += 1
        sink.write(_line(schema_record(msgspec.convert({**each, "md5": each.get("guid")}, StoredSchema))))
    for each in listed(api, "/headrace/settings?"):
        sink.write(f"{each['key']}\t{each['value']}\n")
    highest = msgspec.convert(api.get("/headrace/highest-ids"), StoredHighestIds).highest_ids
    if highest:
        sink.write(_line(highest_ids_record(highest)))
    return count


def listed(api: HttpApi, path: str) -> Iterator[dict[str, Any]]:
    """All entries of a list, page by page: a page ends at a number of entries or of bytes."""
    offset = 0
    while page := api.get(f"{path}&offset={offset}&limit={PAGE}"):
        yield from page
        offset += len(page)


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
            machine.replay(InternalRecord(key.encode(), None if value in _TOMBSTONES else value.encode()), -1)
        except CorruptBatch as error:
            raise BadArgument(f"line {number}: {error}") from None
    return machine


def import_schemas(api: HttpApi, machine: SchemaMachine, *, force: bool) -> int:
    """Register every version with its id, then set settings, modes and highest ids; the number of versions.

    If it fails, the modes of the subjects become what they were.
    """
    versions = [each for subject in machine.subjects() for each in machine.versions(subject, deleted=True).values()]
    before: dict[str, str | None] = {}
    try:
        for subject in machine.subjects():
            before[subject] = _own_mode(api, subject)
            api.put(f"/mode/{_quoted(subject)}{'?force=true' if force else ''}", {"mode": "IMPORT"})
        _register_all(api, sorted(versions, key=lambda each: (each.id, each.subject, each.version)))
        for each in versions:
            if each.deleted:
                _optional_delete(api, f"/subjects/{_quoted(each.subject)}/versions/{each.version}")
        for scope in machine.scopes():
            _set_settings(api, machine, scope)
        if highest := machine.highest_ids():
            api.put("/headrace/highest-ids", {"highestIds": {**highest}})
    except BaseException as error:
        raise _restored(api, before, error) from None
    return len(versions)


def _own_mode(api: HttpApi, subject: str) -> str | None:
    try:
        return str(api.get(f"/mode/{_quoted(subject)}")["mode"])
    except CommandFailed as error:
        if "does not have subject-level" not in str(error):
            raise
        return None


def _restored(api: HttpApi, modes: Mapping[str, str | None], error: BaseException) -> BaseException:
    """The error of an import, after the modes were set back; with the subjects whose modes could not be."""
    left = []
    for subject, mode in modes.items():
        try:
            _set_mode(api, subject, mode)
        except CommandFailed:
            left.append(subject)
    if not left:
        return error
    return CommandFailed(
        f"{error}; {len(left)} subjects are left in the mode IMPORT, such as {left[0]}: "
        "headrace schema mode SUBJECT --unset"
    )


def _set_mode(api: HttpApi, subject: str, mode: str | None) -> None:
    path = f"/mode/{_quoted(subject)}"
    if mode is not None:
        api.put(f"{path}?force=true", {"mode": mode})
    elif _own_mode(api, subject) is not None:
        api.delete(path)


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
    config, mode = machine.config(scope), machine.mode(scope)
    if config is not None:
        given = {key: value for key, value in msgspec.to_builtins(config).items() if key != "subject"}
        level = given.pop("compatibilityLevel", None)
        path = "/config" if scope is None else f"/config/{_quoted(scope)}"
        api.put(path, {**given, **({"compatibility": level} if level else {})})
    if scope is not None and (mode is not None or machine.versions(scope, deleted=True)):
        _set_mode(api, scope, mode)
    elif mode is not None:
        api.put("/mode?force=true", {"mode": mode})


def _optional_delete(api: HttpApi, path: str) -> None:
    """Delete a version; it is deleted already when the import is repeated."""
    try:
        api.delete(path)
    except CommandFailed as error:
        if "was soft deleted" not in str(error):
            raise


def _quoted(text: str) -> str:
    return quote(text, safe="")
