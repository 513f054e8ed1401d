"""Requests that set the offsets of a group without members, for tools and for the HTTP API."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from headrace.model.ids import by_topic
from headrace.protocol.codec import make


def offset_commit(schema: ModuleType, group: str, offsets: Mapping[tuple[str, int], int], metadata: str = "") -> Any:
    """An OffsetCommit as no member."""
    topics: tuple[Any, ...] = tuple(
        make(
            schema.OffsetCommitRequestTopic,
            name=topic,
            partitions=tuple(
                make(
                    schema.OffsetCommitRequestPartition,
                    partition_index=index,
                    committed_offset=offsets[topic, index],
                    committed_metadata=metadata,
                )
                for index in indexes
            ),
        )
        for topic, indexes in by_topic(offsets).items()
    )
    return make(
        schema.OffsetCommitRequest,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time_ms=-1,
        topics=topics,
    )


def alter_share_offsets(schema: ModuleType, group: str, offsets: Mapping[tuple[str, int], int]) -> Any:
    """An AlterShareGroupOffsets: the start offsets of a share group."""
    topics: tuple[Any, ...] = tuple(
        make(
            schema.AlterShareGroupOffsetsRequestTopic,
            topic_name=topic,
            partitions=tuple(
                make(
                    schema.AlterShareGroupOffsetsRequestPartition,
                    partition_index=index,
                    start_offset=offsets[topic, index],
                )
                for index in indexes
            ),
        )
        for topic, indexes in by_topic(offsets).items()
    )
    return make(schema.AlterShareGroupOffsetsRequest, group_id=group, topics=topics)
