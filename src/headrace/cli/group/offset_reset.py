"""Reads the topics and partitions of `headrace group reset-offsets`. Pure."""

from headrace.cli.errors import BadArgument


def parse_topic(text: str) -> tuple[str, list[int] | None]:
    """`orders` as all partitions of a topic, `orders:0,3` as two of them."""
    topic, colon, listed = text.partition(":")
    if not colon:
        return topic, None
    parts = listed.split(",")
    if not topic or not all(part.strip().isdecimal() for part in parts):
        raise BadArgument(f"--topic {text} is not TOPIC or TOPIC:PARTITION,PARTITION")
    return topic, [int(part) for part in parts]
