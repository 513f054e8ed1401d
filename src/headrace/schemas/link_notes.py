"""What links to other clusters have brought to a registry, and what clients may not change for that reason. Pure.

A context that a link *holds* gets its ids over the link: a registration here that would need a new id is refused, since
the source may give the same id to another schema, and the records of mirror topics have the ids of the source.
"""

from collections.abc import Iterator, Mapping

from headrace.schemas.errors import OperationNotPermitted
from headrace.schemas.stored import LinkNote
from headrace.schemas.subjects import context_of, context_subject


def scope_key(scope: str | None) -> str:
    """The subject of the note about a subject, a context, or with None the default context and the global settings."""
    return scope or ""


def hold_key(context: str) -> str:
    """The subject of the note about a context."""
    return scope_key(context_subject(f":{context}:"))


class LinkNotes:
    """The notes of a registry; only the replay of its records changes them."""

    def __init__(self) -> None:
        self._notes: dict[str, LinkNote] = {}

    def put(self, scope: str, note: LinkNote | None) -> None:
        if note is None:
            self._notes.pop(scope, None)
        else:
            self._notes[scope] = note

    @property
    def all(self) -> Mapping[str, LinkNote]:
        """All notes, by subject."""
        return self._notes

    def of(self, link: str) -> Iterator[tuple[str, LinkNote]]:
        """The notes of the link with this id."""
        return ((scope, note) for scope, note in self._notes.items() if note.link == link)

    def note(self, scope: str, link: str) -> LinkNote | None:
        """The note of this link about a subject or context; None if there is none, or one of another link."""
        found = self._notes.get(scope)
        return found if found is not None and found.link == link else None

    def holder(self, context: str) -> LinkNote | None:
        """The note of the link that holds a context; None if clients may register in it."""
        found = self._notes.get(hold_key(context))
        return found if found is not None and found.is_held else None

    def check_change(self, subject: str) -> None:
        """Refuse a change of a subject whose versions come over a link."""
        holder = self.holder(context_of(subject))
        note = self._notes.get(subject)
        if holder is not None and note is not None and note.versions and note.link == holder.link:
            raise OperationNotPermitted(
                f"Subject {subject} comes over the link {holder.name}: change it in the source cluster, or leave "
                f"schemas out of headrace link alter {holder.name} --sync first"
            )

    def check_new_id(self, subject: str) -> None:
        """Refuse a version that needs an id which no schema of the context has yet."""
        holder = self.holder(context_of(subject))
        if holder is not None:
            raise OperationNotPermitted(
                f"The ids of the context {context_of(subject)} come over the link {holder.name}, so subject {subject} "
                "gets no new one here: register the schema in the source cluster, or in another context such as "
                f":.local:{subject}, or leave schemas out of headrace link alter {holder.name} --sync first"
            )
