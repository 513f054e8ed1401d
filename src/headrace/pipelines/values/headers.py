"""The schemas that records name in their header `__value_schema_id`: the wire format v1. By blocks.

As in the SDK, the last such header of a record counts, one without a value is none, and either key of a schema is read:
a GUID or an id. For Protobuf the place of the message follows it.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.records.varints import Integers
from headrace.schemas.payload.frames import VALUE_HEADER


class SchemaHeaders(NamedTuple):
    """The rows that have the header, and which of the different values each has."""

    rows: Integers
    places: Integers
    values: list[bytes]


def schema_headers(headers: pa.Array) -> SchemaHeaders | None:
    """Those of a block; None if there are none. `headers`: list<struct<key: string, value: binary>>."""
    if headers.null_count == len(headers):
        return None
    pairs = headers.flatten()
    mine = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(pairs.field(0), VALUE_HEADER), False)))
    if not len(mine):
        return None
    last = np.full(len(headers), -1, np.int64)
    last[np.asarray(pc.list_parent_indices(headers))[mine]] = mine
    rows = np.flatnonzero(last >= 0)
    values = pairs.field(1).take(pa.array(last[rows]))
    if values.null_count:
        rows, values = rows[np.asarray(values.is_valid())], values.drop_null()
    coded = values.dictionary_encode()
    return SchemaHeaders(rows, np.asarray(coded.indices), coded.dictionary.to_pylist())
