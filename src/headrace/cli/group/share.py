"""The work of `headrace group` for share groups (KIP-932), which librdkafka's admin client does not know."""

from collections.abc import Mapping
from typing import Any

from headrace.cli.errors import CommandFailed
from headrace.cli.output import count
from headrace.groups.offset_reset import OffsetMove
from headrace.wire import Cluster, ShareGroupInfo, WireError

Where = tuple[str, int]


def share_group(bootstrap: str, group: str) -> ShareGroupInfo | None:
    """None if there is no share group of this name."""
    try:
        with Cluster(bootstrap) as cluster:
            return cluster.describe_share_group(group)
    except WireError as error:
        raise CommandFailed(str(error)) from None


def started(share: ShareGroupInfo) -> dict[Where, int]:
    """From where on the group is not done."""
    return {where: found.start_offset for where, found in share.positions.items() if found.start_offset >= 0}


def set_started(bootstrap: str, share: ShareGroupInfo, moves: list[OffsetMove]) -> None:
    if share.members:
        members = count(len(share.members), "member")
        raise CommandFailed(f"the group {share.group} has {members}: stop its consumers first")
    try:
        with Cluster(bootstrap) as cluster:
            cluster.set_share_offsets(share.group, {(each.topic, each.partition): each.after for each in moves})
    except WireError as error:
        raise CommandFailed(str(error)) from None


def describe_share(share: ShareGroupInfo, ends: Mapping[Where, int]) -> dict[str, Any]:
    """Everything about a share group, in the shape of other groups. A partition may have several members."""
    rows = []
    for (topic, partition), (start, lag) in sorted(share.positions.items()):
        having = [member for member in share.members if (topic, partition) in member.partitions]
        rows.append(
            {
                "topic": topic,
                "partition": partition,
                "committed": None if start < 0 else start,
                "end_offset": ends[topic, partition],
                "lag": max(0, lag),
                "member": ", ".join(member.member_id for member in having) or None,
                "client_id": ", ".join(member.client_id for member in having) or None,
                "host": ", ".join(dict.fromkeys(member.host for member in having)) or None,
            }
        )
    return {
        "group": share.group,
        "state": share.state.lower(),
        "type": "share",
        "assignor": share.assignor,
        "lag": sum(row["lag"] for row in rows),
        "members": [
            {
                "member": member.member_id,
                "instance": None,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": [[topic, partition] for topic, partition in member.partitions],
            }
            for member in share.members
        ],
        "partitions": rows,
    }
