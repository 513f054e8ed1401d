"""AlterReplicaLogDirs (34), versions 1-2: move replicas of this broker between its log directories.

A broker has one log directory, which DescribeLogDirs shows. Moving a replica of this broker there succeeds as a no-op;
any other directory is LOG_DIR_NOT_FOUND. A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, one without a
replica on this broker REPLICA_NOT_AVAILABLE.

Permissions: ALTER on the cluster, else CLUSTER_AUTHORIZATION_FAILED for each partition.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import ALTER_CLUSTER
from headrace.model.ids import TopicName
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
    from kio.schema.alter_replica_log_dirs.v2.response import AlterReplicaLogDirsResponse

KEY = 34
_DENIED = ErrorCode.cluster_authorization_failed


@handles(KEY, 1, 2, needs=(ALTER_CLUSTER,))
def alter_replica_log_dirs(ctx: Context, request: "AlterReplicaLogDirsRequest") -> "AlterReplicaLogDirsResponse":
    schema = ctx.schema
    may_alter = ctx.allows(ALTER_CLUSTER)
    codes: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                code = _move(ctx, directory.path, topic.name, index) if may_alter else _DENIED
                codes.setdefault(topic.name, {})[index] = code
    return make(
        schema.AlterReplicaLogDirsResponse,
        throttle_time=NO_THROTTLE,
        results=tuple(
            make(
                schema.AlterReplicaLogDirTopicResult,
                topic_name=name,
                partitions=tuple(
                    make(schema.AlterReplicaLogDirPartitionResult, partition_index=index, error_code=code)
                    for index, code in partitions.items()
                ),
            )
            for name, partitions in codes.items()
        ),
    )


def _move(ctx: Context, path: str, name: str, index: int) -> ErrorCode:
    if path != str(Path(ctx.services.settings.data_dir).absolute()):
        return ErrorCode.log_dir_not_found
    metadata = ctx.services.metadata
    topic = metadata.image.topics.get(TopicName(name))
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.unknown_topic_or_partition
    is_here = metadata.broker_id in topic.partitions[index].replicas
    return ErrorCode.none if is_here else ErrorCode.replica_not_available
