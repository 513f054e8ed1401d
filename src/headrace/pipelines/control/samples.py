"""Samples of a topic, to infer its schema or to preview a pipeline."""

from headrace.client.message import Message
from headrace.pipelines.source.messages import read_messages
from headrace.wire import EARLIEST, READ_COMMITTED, Cluster

_MAX_BYTES = 16 * 1024 * 1024


def newest_messages(cluster: Cluster, topic: str, count: int) -> list[Message] | None:
    """About the last `count` messages of a topic, evenly over its partitions; None if the topic does not exist.

    Reading stops with the message that exceeds 16 MiB in total.
    """
    found = cluster.metadata([topic]).get(topic)
    if found is None:
        return None
    partitions = [(topic, index) for index in range(len(found.partitions))]
    starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = cluster.list_offsets(partitions, isolation=READ_COMMITTED)
    sizes = {where: ends[where].offset - starts[where].offset for where in partitions}
    filled = sorted((where for where in partitions if sizes[where] > 0), key=lambda where: sizes[where])
    messages: list[Message] = []
    size_bytes = 0
    for number, where in enumerate(filled):
        # Larger partitions make up for small ones.
        share = -(-(count - len(messages)) // (len(filled) - number))
        end = ends[where].offset
        for each in read_messages(cluster, *where, max(starts[where].offset, end - share), end):
            messages.append(each)
            size_bytes += len(each.payload or b"") + len(each.key or b"")
            if size_bytes > _MAX_BYTES:
                return _in_order(messages)
    return _in_order(messages)


def _in_order(messages: list[Message]) -> list[Message]:
    return sorted(messages, key=lambda each: (each.partition, each.offset))
