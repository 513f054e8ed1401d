"""The schemas that the sources of a pipeline are read with, in `checkpoint/schemas.json`.

All queries of a pipeline must judge a record in the same way: one that the sink's query leaves out and the dead
letters' query accepts would be lost. So the driver decides about each schema id once, writes the decision down, and
plans with it; tasks never ask the registry. A record with an id that has no decision yet fails its batch, of which
nothing is written: the driver then decides (`learn`), and the query is planned again and continues at its checkpoint.

The reader's rule: values are read with the newest version of the subject when the pipeline first starts. A newer
version becomes the reader's when the pipeline starts again, or when a record with a new id arrives, but only if it can
read all schemas in use, as the registry's compatibility sees it; otherwise the newest before it that can. If none can,
the reader's schema stays, and records that it cannot read are dead letters. So an accepted record stays accepted. A
`version` or a `schema` in the file is never replaced.

A verdict about the records of an id stays: a newer schema is not taken, either, where the present one cannot read an id
that is in use, whose records were dead letters for some queries already. Protobuf values stay the message that they
were first read as, wherever a newer file has it.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from uuid import UUID

import msgspec

from headrace.model.errors import HeadraceError
from headrace.pipelines.control.folder import replace_text
from headrace.pipelines.control.http_sites import http_sites
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.formats import make_values, named_schema, values_without_registry
from headrace.pipelines.json_schema.columns import columns_of_document, narrowed, parse_document
from headrace.pipelines.protobuf.schema import message_names, message_type, parse_protobuf
from headrace.pipelines.spec.model import Sink, Source, Spec
from headrace.pipelines.values.framed import FramedValues
from headrace.pipelines.values.pinned import FAR_ID, PinnedSchemas, key_order, may_be_known
from headrace.pipelines.values.registry import RegistryUnavailable, SchemaRegistry, VersionedSchema
from headrace.pipelines.values.schemas import WriterSchema, key_text
from headrace.pipelines.values.types import SchemaError
from headrace.schemas.errors import SchemaFault
from headrace.schemas.parsed import incompatibilities, parse_any
from headrace.schemas.payload.frames import SchemaKey

FORMAT = 1
MAX_IDS = 1000
"""Schema ids of a source that are decided about."""
_PREFIX = "/registry"
_SECOND_LOOK_S = 1.0
_MAX_CANDIDATES = 20
"""Versions that are tried when a newer schema for reading is looked for."""
_log = logging.getLogger("headrace.pipelines")

RegistryOf = Callable[[Source | Sink], SchemaRegistry]


class SourceDecisions(msgspec.Struct, frozen=True):
    """The reader's schema of a source, and the schemas of ids and GUIDs; None for one that the registry had not."""

    subject: str
    reader: WriterSchema
    reader_id: int = 0
    """The id of the reader's schema; 0 if the file names it."""
    message: str = ""
    """Of Protobuf: the message of the first reader's schema, which a newer one may have elsewhere than first."""
    highest_id: int = FAR_ID
    """Values with a higher id are dead letters, whatever the registry gets later."""
    ids: tuple[tuple[int | UUID, WriterSchema | None], ...] = ()

    def with_ids(self, found: Mapping[SchemaKey, WriterSchema | None]) -> "SourceDecisions":
        """A decision stays: an id that has one is not decided about again."""
        fresh = {each: schema for each, schema in found.items() if may_be_known(each, self.highest_id)}
        merged = {**fresh, **dict(self.ids)}
        return msgspec.structs.replace(self, ids=tuple((key, merged[key]) for key in sorted(merged, key=key_order)))


class SchemaDecisions(msgspec.Struct, frozen=True):
    """The content of the file, by source."""

    sources: dict[str, SourceDecisions] = {}
    format: int = FORMAT


class SourceSchemas:
    """The decoders of a pipeline's sources; see the module. Without a `file` nothing is stored."""

    def __init__(self, spec: Spec, file: Path | None = None, registry_of: RegistryOf | None = None) -> None:
        self._spec = spec
        self._file = file
        self._registry_of = registry_of or (lambda part: registry_for(spec, part))
        self._decided: dict[str, SourceDecisions] | None = None
        self._is_current: set[str] = set()

    def values(self, name: str) -> FramedValues | None:
        """The decoder of a source; None for a format without schemas. Raises `SchemaError`, `RegistryUnavailable`."""
        source = self._spec.sources[name]
        if not source.has_schemas:
            return None
        if not source.uses_registry:
            return values_without_registry(source, self._spec.folder)
        decisions = self._current(name, source)
        writers = PinnedSchemas(name, decisions.ids, decisions.highest_id)
        return make_values(source, decisions.reader, writers, decisions.message)

    def learn(self, name: str, ids: Iterable[SchemaKey]) -> None:
        """Decide about ids that records of a source have, and take a newer schema for reading if it is time."""
        source = self._spec.sources[name]
        decisions = self._current(name, source)
        known = dict(decisions.ids)
        fresh = [each for each in ids if each not in known and may_be_known(each, decisions.highest_id)]
        if not fresh:
            return
        if len(decisions.ids) + len(fresh) > MAX_IDS:
            raise PipelineError(
                f"records of {name} have more than {MAX_IDS} schema ids, such as {fresh[-1]}: is {source.format} the "
                "format of its topic?"
            )
        registry = self._registry_of(source)
        found = {each: _schema_of(registry, each) for each in fresh}
        if missing := [each for each, schema in found.items() if schema is None]:
            # The decision stays, and a registry of several nodes may answer from the past for a moment.
            time.sleep(_SECOND_LOOK_S)
            found |= {each: _schema_of(registry, each) for each in missing}
        learned = decisions.with_ids(found)
        self._store(name, self._newest(name, source, registry, learned, decisions))

    def _current(self, name: str, source: Source) -> SourceDecisions:
        if self._decided is None:
            self._decided = dict(_read(self._file).sources)
        if name not in self._is_current:
            self._store(name, self._begun(name, source, self._decided.get(name)))
            self._is_current.add(name)
        return self._decided[name]

    def _begun(self, name: str, source: Source, stored: SourceDecisions | None) -> SourceDecisions:
        """The decisions at the start of the pipeline: the stored ones, with what the registry has got since."""
        named = named_schema(source, self._spec.folder)
        if stored is not None and stored.subject == source.subject_name:
            try:
                return self._newest(name, source, self._registry_of(source), stored, stored)
            except (RegistryUnavailable, OSError) as error:
                _log.warning("the schema registry does not answer, %s is read as before: %s", name, error)
                return stored
        registry = self._registry_of(source)
        known = list(registry.versions(source.subject_name)) if source.subject_name else []
        ids: dict[SchemaKey, WriterSchema | None] = {each.id: each.schema for each in known}
        highest = max((each.id for each in known), default=0)
        if named is not None:
            return SourceDecisions(source.subject_name, named, highest_id=highest + FAR_ID).with_ids(ids)
        found = self._wanted(source, registry)
        ids[found.id] = found.schema
        message = _first_message(found.schema) if source.version is None else ""
        made = SourceDecisions(source.subject_name, found.schema, found.id, message, max(highest, found.id) + FAR_ID)
        return made.with_ids(ids)

    def _wanted(self, source: Source, registry: SchemaRegistry) -> VersionedSchema:
        if source.version is None:
            return registry.latest(source.subject_name)
        found = registry.find(source.subject_name, source.version)
        if found is None:
            raise SchemaError(
                f"the registry at {registry.address} has no version {source.version} of {source.subject_name}"
            )
        return found

    def _newest(
        self,
        name: str,
        source: Source,
        registry: SchemaRegistry,
        decisions: SourceDecisions,
        judged: SourceDecisions,
    ) -> SourceDecisions:
        """The decisions with the reader's schema: that of the file, or the newest one that reads all that is in use.

        Records of the ids in `judged` were read before.
        """
        named = named_schema(source, self._spec.folder)
        if named is not None:
            return msgspec.structs.replace(decisions, reader=named, reader_id=0, message="")
        message = ""
        if source.version is None:
            message = decisions.message or _first_message(decisions.reader)
        for found in self._candidates(name, source, registry, decisions.reader_id):
            refused = source.version is None and _refusal(source.message or message, found, decisions, judged)
            if not refused:
                _log.info("%s is read with version %d of %s", name, found.version, source.subject_name)
                made = decisions.with_ids({found.id: found.schema})
                return msgspec.structs.replace(made, reader=found.schema, reader_id=found.id, message=message)
            text = "%s is not read with version %d of %s: %s"
            _log.warning(text, name, found.version, source.subject_name, refused)
        return decisions

    def _candidates(
        self, name: str, source: Source, registry: SchemaRegistry, reader_id: int
    ) -> Iterator[VersionedSchema]:
        """The versions that could be read with in place of the present one, the newest first.

        One may be unfit where the one before is not: it may break readers of the first version, or be deleted soon.
        """
        try:
            found: VersionedSchema | None = self._wanted(source, registry)
            for _ in range(_MAX_CANDIDATES):
                if found is None or found.id == reader_id:
                    return
                yield found
                if source.version is not None:
                    return
                found = registry.before(source.subject_name, found.version)
        except SchemaError as error:
            _log.warning("%s is read as before: %s", name, error)

    def _store(self, name: str, decisions: SourceDecisions) -> None:
        assert self._decided is not None
        if self._decided.get(name) == decisions:
            return
        self._decided[name] = decisions
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            replace_text(self._file, msgspec.json.encode(SchemaDecisions(self._decided)).decode())


def registry_for(spec: Spec, part: Source | Sink) -> SchemaRegistry:
    """The registry that a section names, or that of its brokers. Raises `SchemaError`, `RegistryUnavailable`."""
    if part.registry is not None:
        return SchemaRegistry(part.registry)
    try:
        urls, credentials = http_sites(spec.bootstrap_of(part), spec.connection)
    except HeadraceError as error:
        raise RegistryUnavailable(f"the schema registry of the brokers was not found: {error}") from error
    return SchemaRegistry([url.rstrip("/") + _PREFIX for url in urls], credentials=credentials)


def _schema_of(registry: SchemaRegistry, schema_id: SchemaKey) -> WriterSchema | None:
    try:
        return registry.by_id(schema_id)
    except SchemaError as error:
        _log.warning("the schema of %s cannot be used: %s", key_text(schema_id), error)
        return None


def _first_message(schema: WriterSchema) -> str:
    """The first message of a Protobuf schema; empty for others, and if there is none."""
    if schema.kind != "PROTOBUF":
        return ""
    return next((name for name, _ in message_names(parse_protobuf(schema.text, schema.references))), "")


def _refusal(message: str, found: VersionedSchema, decisions: SourceDecisions, judged: SourceDecisions) -> str:
    """Why a newer schema does not become the reader's; empty if it does."""
    in_use = [(each, schema) for each, schema in decisions.ids if schema is not None and each != found.id]
    if problem := _unreadable(found.schema, in_use):
        return problem
    before = [(each, schema) for each, schema in judged.ids if schema is not None and each != judged.reader_id]
    if problem := _unreadable(judged.reader, before):
        return f"records that it reads are dead letters already: of the schema so far, {problem}"
    if message and found.schema.kind == "PROTOBUF":
        try:
            message_type(parse_protobuf(found.schema.text, found.schema.references), message)
        except SchemaError as error:
            return str(error)
    return ""


def _unreadable(reader: WriterSchema, writers: Iterable[tuple[SchemaKey, WriterSchema]]) -> str:
    """Why a schema cannot read values of others that are in use; empty if it can."""
    for schema_id, writer in writers:
        try:
            problem = _misread(reader, writer)
        except (SchemaFault, SchemaError) as error:
            problem = str(error)
        if problem:
            return f"it cannot read values of the schema of {key_text(schema_id)}: {problem}"
    return ""


def _misread(reader: WriterSchema, writer: WriterSchema) -> str:
    if reader.kind == writer.kind == "JSON":
        # Each value is checked by its own schema: the reader's only names columns.
        new, old = (columns_of_document(parse_document(each.text, each.references)) for each in (reader, writer))
        return f"{found} has another type" if (found := narrowed(new, old)) else ""
    parsed = [parse_any(each.kind, each.text, each.references, is_new=False) for each in (reader, writer)]
    found_changes = incompatibilities(*parsed)
    return found_changes[0].description if found_changes else ""


def _read(file: Path | None) -> SchemaDecisions:
    if file is None:
        return SchemaDecisions()
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return SchemaDecisions()
    try:
        found = msgspec.json.decode(data, type=SchemaDecisions)
    except msgspec.DecodeError as error:
        raise PipelineError(
            f"{file} is damaged ({error}): restore it, or start from scratch with headrace pipeline reset"
        ) from None
    if found.format > FORMAT:
        raise PipelineError(
            f"{file} was written by a newer Headrace (format {found.format}, this one reads {FORMAT}): use that one"
        )
    return found
