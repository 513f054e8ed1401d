"""The work of `headrace group` for streams groups (KIP-1071), which librdkafka's admin client does not know."""

import re

from headrace.cli.errors import CommandFailed
from headrace.wire import Cluster, WireError
from headrace.wire.streams_groups import StreamsGroupInfo


def streams_group(bootstrap: str, group: str) -> StreamsGroupInfo | None:
    """None if there is no streams group of this name."""
    try:
        with Cluster(bootstrap) as cluster:
            return cluster.describe_streams_group(group)
    except WireError as error:
        raise CommandFailed(str(error)) from None


def state_word(state: str) -> str:
    """`not ready` for NotReady."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", state).lower()
