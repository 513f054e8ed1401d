"""Which settings of a source topic its mirror topic has. Pure.

Those about replicas and encryption are for each cluster to decide: the source may have more brokers or no keys. A
mirror of a queue is an ordinary topic until it is promoted. A setting that does not exist here, or is not possible, is
left out.
"""

from collections.abc import Mapping

from headrace.cluster.topics import check_queue
from headrace.config.topic import TOPIC_SETTINGS, TopicSettings, topic_settings
from headrace.model.errors import InvalidPartitions, SettingsError

_LOCAL = frozenset(
    {
        "min.insync.replicas",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "unclean.leader.election.enable",
        "encryption.at.rest",
    }
)
_TYPE, _DEAD_LETTER, _ATTRIBUTES = "queue.type", "queue.dead.letter", "queue.attributes"
RETAINED = (_DEAD_LETTER, _ATTRIBUTES)
"""Settings of a queue that a former source retains when it becomes a mirror."""
_LOCAL_PREFIXES = ("queue.", "remote.", "max.backlog.", "flush.")


def _is_local(name: str) -> bool:
    return name in _LOCAL or name.startswith(_LOCAL_PREFIXES)


def copied_settings(source: Mapping[str, str], defaults: TopicSettings) -> tuple[dict[str, str], frozenset[str]]:
    """The settings that the mirror topic gets, and the names of those that are not possible here."""
    copied: dict[str, str] = {}
    left_out: set[str] = set()
    for name, value in source.items():
        if _is_local(name):
            continue
        try:
            if name not in TOPIC_SETTINGS:
                raise SettingsError(name)
            topic_settings({**copied, name: value}, defaults)
        except SettingsError:
            left_out.add(name)
        else:
            copied[name] = value
    return copied, frozenset(left_out)


def queue_definition(
    source: Mapping[str, str], partitions: int, prefix: str, defaults: TopicSettings
) -> tuple[dict[str, str], str]:
    """The settings by which the mirror of a queue becomes one, and why it cannot; both are empty for other topics.

    Its dead-letter queue is the mirror of that of the source. The attributes, which only the SQS API has, are left out:
    they have the policy, which gives permissions.
    """
    queue = {name: value for name, value in source.items() if name.startswith("queue.") and name != _ATTRIBUTES}
    if queue.get(_TYPE, "none") == "none":
        return {}, ""
    if dead_letter := queue.get(_DEAD_LETTER):
        queue[_DEAD_LETTER] = prefix + dead_letter
    try:
        check_queue(queue, partitions)
        topic_settings({**copied_settings(source, defaults)[0], **queue}, defaults)
    except (SettingsError, InvalidPartitions) as error:
        return {}, f"it cannot become a queue here: {error}"
    return queue, ""


def local_settings(mine: Mapping[str, str]) -> dict[str, str]:
    """The settings of a mirror topic that do not follow the source."""
    return {name: value for name, value in mine.items() if _is_local(name)}
