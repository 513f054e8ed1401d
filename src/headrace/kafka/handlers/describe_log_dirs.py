"""DescribeLogDirs (35), versions 1-5: the size of each partition on disk, and the volume's free space.

- There is one log directory. Null topics mean all; partitions without a replica here are left out, as in Kafka.
- From v4 on with the size of the volume. v5 has whether the directory is cordoned: while this broker is drained.
- A follower's lag is the number of committed records that it does not have yet; a leader's is 0.
- There are no future logs: replicas do not move between directories.
- Permissions: DESCRIBE on the cluster, else no directory and CLUSTER_AUTHORIZATION_FAILED (a field from v3 on).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import DESCRIBE_CLUSTER
from headrace.model.errors import HeadraceError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.replication.partition import Partition
from headrace.runtime.volume import volume_size

if TYPE_CHECKING:
    from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
    from kio.schema.describe_log_dirs.v5.response import (
        DescribeLogDirsPartition,
        DescribeLogDirsResponse,
        DescribeLogDirsResult,
    )

KEY = 35


@handles(KEY, 1, 5, needs=(DESCRIBE_CLUSTER,))
def describe_log_dirs(ctx: Context, request: "DescribeLogDirsRequest") -> "DescribeLogDirsResponse":
    schema = ctx.schema
    if not ctx.allows(DESCRIBE_CLUSTER):
        code = ErrorCode.cluster_authorization_failed
        return make(schema.DescribeLogDirsResponse, throttle_time=NO_THROTTLE, error_code=code, results=())
    own = ctx.services.metadata.image.brokers.get(ctx.services.metadata.broker_id)
    log_dir = Path(ctx.services.settings.data_dir).absolute()
    by_topic: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in _wanted(ctx, request):
        by_topic.setdefault(partition.topic, []).append(
            make(
                schema.DescribeLogDirsPartition,
                partition_index=partition.index,
                partition_size=partition.log.size_bytes,
                offset_lag=partition.copier.lag,
                is_future_key=False,
            )
        )
    error, total_bytes, usable_bytes = ErrorCode.none, -1, -1
    try:
        total_bytes, usable_bytes = volume_size(log_dir)
    except OSError:
        error = ErrorCode.kafka_storage_error
    result: DescribeLogDirsResult = make(
        schema.DescribeLogDirsResult,
        error_code=error,
        log_dir=str(log_dir),
        topics=tuple(
            make(schema.DescribeLogDirsTopic, name=name, partitions=tuple(parts)) for name, parts in by_topic.items()
        ),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        is_cordoned=own is not None and own.is_draining,
    )
    return make(schema.DescribeLogDirsResponse, throttle_time=NO_THROTTLE, error_code=ErrorCode.none, results=(result,))


def _wanted(ctx: Context, request: "DescribeLogDirsRequest") -> Iterable[Partition]:
    partitions = ctx.services.partitions
    if request.topics is None:
        return partitions.all()
    found = {}
    for topic in request.topics:
        for index in topic.partitions:
            try:
                found[topic.topic, index] = partitions.get(topic.topic, index)
            except HeadraceError:
                continue
    return found.values()
