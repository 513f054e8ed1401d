"""Records that failed to decode, as dead letters: key, value and headers unchanged, plus reason and origin.

The added headers are those of the SDK's dead letters, so the same tools read both.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.client.message import GROUP, ORIGINAL_OFFSET, ORIGINAL_PARTITION, ORIGINAL_TIMESTAMP, ORIGINAL_TOPIC
from headrace.client.retry import OWN_HEADERS
from headrace.model.failure_headers import REASON
from headrace.pipelines import decode
from headrace.pipelines.spec.model import DEAD_LETTER_SUFFIX, Errors


def dead_letters(decoded: DataFrame, errors: Errors, group: str) -> DataFrame:
    """The dead letters of decoded records, each with its topic; `decoded` must have the column headers."""
    bad = decoded.where(F.col(decode.REASON).isNotNull())
    retained = F.filter(
        F.coalesce(F.col("headers"), F.array().cast("array<struct<key:string,value:binary>>")),
        lambda header: ~header["key"].isin(*sorted(OWN_HEADERS)),
    )
    added = F.array(
        _header(REASON, F.col(decode.REASON)),
        _header(GROUP, F.lit(group)),
        _header(ORIGINAL_TOPIC, F.col("topic")),
        _header(ORIGINAL_PARTITION, F.col("partition").cast("string")),
        _header(ORIGINAL_OFFSET, F.col("offset").cast("string")),
        _header(ORIGINAL_TIMESTAMP, F.unix_millis("timestamp").cast("string")),
    )
    if errors.topic is None:
        topic = F.concat(F.col("topic"), F.lit(DEAD_LETTER_SUFFIX))
    else:
        topic = F.lit(errors.topic)
    return bad.select("key", "value", F.concat(retained, added).alias("headers"), topic.alias("topic"))


def _header(name: str, text: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), text.cast("binary").alias("value"))
