"""ARNs of queues: `arn:<partition>:<service>:<region>:<account-id>:<resource-id>`."""

from typing import NamedTuple

_PARTITIONS = frozenset({"aws", "aws-cn", "aws-us-gov"})
_PARTS = 6


class Arn(NamedTuple):
    partition: str
    service: str
    region: str
    account: str
    resource: str


def parse_arn(text: str) -> Arn | None:
    """None for a text that is no ARN."""
    scheme, *parts = text.split(":", _PARTS)
    if scheme != "arn" or len(parts) != _PARTS - 1 or not all(parts) or parts[0] not in _PARTITIONS:
        return None
    return Arn(*parts)
