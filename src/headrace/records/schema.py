"""The Arrow schema of decoded records: that of Spark's Kafka source."""

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

_PLAIN = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
    ]
)
_WITH_HEADERS = _PLAIN.append(pa.field("headers", HEADERS))


def schema(*, headers: bool = False) -> pa.Schema:
    """The schema of the batches that `decode` yields."""
    return _WITH_HEADERS if headers else _PLAIN
