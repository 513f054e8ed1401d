"""The topics that the client of a connection was found to be allowed to write to or to read.

Produce and Fetch check every topic of every request; a topic that was allowed before costs one look into a set. The set
holds for one `Authorizer` and one `Subject`, compared by identity. A change of the ACLs or of their settings makes a
new authorizer, another login a new subject: either empties it, so a revoked permission is gone at once. Denials are not
cached: each is decided again, and reported to the audit log.

There are at most `TOPICS_MAX` topics for each permission, since clients choose their names. The sets are plain
attributes: to look one up by its permission takes as long as all the rest of a check, since hashing an enum is slow.
"""

from headrace.protocol.fast import TopicKey
from headrace.security.authorizer import Authorizer
from headrace.security.subject import Subject

TOPICS_MAX = 1024


class TopicGrants:
    __slots__ = ("given_by", "given_to", "readable", "writable")

    def __init__(self) -> None:
        self.given_by: Authorizer | None = None
        self.given_to: Subject | None = None
        self.readable: set[TopicKey] = set()
        """The topics, by name or id, that the authorizer has allowed the subject to read; `add` adds others."""
        self.writable: set[TopicKey] = set()
        """The same for writing."""

    def renew(self, authorizer: Authorizer, subject: Subject) -> None:
        """Call it unless the topics were given by this authorizer to this subject."""
        self.given_by, self.given_to = authorizer, subject
        self.readable, self.writable = set(), set()

    @staticmethod
    def add(topics: set[TopicKey], topic: TopicKey) -> None:
        """Add a topic that the authorizer has allowed; if there are too many, all others are forgotten."""
        if len(topics) >= TOPICS_MAX:
            topics.clear()
        topics.add(topic)
