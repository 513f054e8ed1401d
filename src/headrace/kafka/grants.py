"""The topics that the client of a connection was found to be allowed to write to or to read.

Produce and Fetch check every topic of every request; a topic that was allowed before costs one look into a set. The set
holds for one `Authorizer` and one `Subject`, compared by identity. A change of the ACLs or of their settings makes a
new authorizer, another login a new subject: either empties it, so a revoked permission is gone at once. Denials are not
cached: each is decided again, and reported to the audit log.

There are at most `TOPICS_MAX` topics for each permission, since clients choose their names.
"""

from headrace.kafka.permissions import Need
from headrace.protocol.fast import TopicKey
from headrace.security.authorizer import Authorizer
from headrace.security.subject import Subject

TOPICS_MAX = 1024


class TopicGrants:
    __slots__ = ("_by_need", "_given_by", "_given_to")

    def __init__(self) -> None:
        self._given_by: Authorizer | None = None
        self._given_to: Subject | None = None
        self._by_need: dict[Need, set[TopicKey]] = {}

    def topics(self, need: Need, authorizer: Authorizer, subject: Subject) -> set[TopicKey]:
        """Return the topics, by name or id, for which the authorizer has allowed it; `add` adds others."""
        if self._given_by is not authorizer or self._given_to is not subject:
            self._given_by, self._given_to = authorizer, subject
            self._by_need = {}
        topics = self._by_need.get(need)
        if topics is None or len(topics) >= TOPICS_MAX:
            topics = self._by_need[need] = set()
        return topics

    @staticmethod
    def add(topics: set[TopicKey], topic: TopicKey) -> None:
        """Add a topic that the authorizer has allowed to the set that `topics` returned."""
        if len(topics) < TOPICS_MAX:
            topics.add(topic)
