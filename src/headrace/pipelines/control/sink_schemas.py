"""The schemas that the topic sinks of a pipeline write with: registered before the first row is written."""

import logging

import pyarrow as pa

from headrace.pipelines.control.source_schemas import RegistryOf, registry_for
from headrace.pipelines.row_values import RowValues, row_schema
from headrace.pipelines.spec.model import Sink, Spec, subject_of
from headrace.pipelines.values.registry import IncompatibleColumns
from headrace.pipelines.values.types import SchemaError

_log = logging.getLogger("headrace.pipelines")


class SinkSchemas:
    """Makes the encoders of sinks. Without `registers` no registry is asked, and values have the id 0."""

    def __init__(self, spec: Spec, *, registers: bool, registry_of: RegistryOf | None = None) -> None:
        self._registers = registers
        self._registry_of = registry_of or (lambda part: registry_for(spec, part))
        self._known: dict[tuple[str, str], tuple[pa.DataType, RowValues]] = {}

    def values(self, sink: Sink, columns: pa.DataType) -> RowValues:
        """The encoder of rows with these columns, a struct, whose schema is registered now.

        Raises `SchemaError`, also if the registry refuses the schema, or `RegistryUnavailable`.
        """
        topic, format_ = str(sink.topic), str(sink.format)
        if not self._registers:
            return row_schema(format_, columns, topic, None).with_id(0)
        subject = sink.subject or subject_of(topic)
        known = self._known.get((subject, format_))
        if known is not None and known[0] == columns:
            return known[1]
        registry = self._registry_of(sink)
        newest = registry.find(subject)
        made = row_schema(format_, columns, topic, newest.schema if newest else None)
        try:
            schema_id = registry.register(subject, made.schema)
        except IncompatibleColumns as error:
            raise SchemaError(
                f"the columns cannot be the next version of {subject}: {error}; change them, name another subject, or "
                f"change what is compatible: headrace schema config {subject} --set NONE"
            ) from None
        if newest is None or newest.id != schema_id:
            _log.info("rows for %s are written with the schema %d of %s", topic, schema_id, subject)
        values = made.with_id(schema_id)
        self._known[subject, format_] = (columns, values)
        return values
