"""What of a source's registry is not as it is there, counted by kind, each with an example. Pure."""

from enum import Enum


class LinkProblem(Enum):
    """Kinds of what a link does not copy, in the order in which they are said; each is a sentence for its examples."""

    HELD = "{count} contexts are not copied: {example}"
    CLASH = (
        "{count} versions of the source have ids that other schemas have here, and are not copied, for example "
        "{example}. Delete those here for good, or use a link with a prefix: its schemas have a context of their own"
    )
    RETAINED = (
        "{count} versions differ from those of the source and were not brought by the link, so they stay, for example "
        "{example}: delete them here for good to follow the source"
    )
    REFERRED = (
        "{count} versions were deleted at the source and stay here, since schemas of this cluster refer to them, for "
        "example {example}"
    )
    SETTINGS = (
        "settings or modes of {count} scopes were set here and differ from those of the source, for example {example}: "
        "remove them here to follow the source"
    )
    UNUSABLE = "{count} versions or settings of the source cannot be stored here, for example: {example}"
    UNREADABLE = "{count} records of the source cannot be read, for example: {example}"


class LinkProblems:
    def __init__(self) -> None:
        self._found: dict[LinkProblem, tuple[int, str]] = {}

    def note(self, kind: LinkProblem, example: str, count: int = 1) -> None:
        before, first = self._found.get(kind, (0, example))
        self._found[kind] = before + count, first

    def count(self, kind: LinkProblem) -> int:
        return self._found.get(kind, (0, ""))[0]

    @property
    def words(self) -> str:
        """All of them; empty if there are none."""
        ordered = [(kind, *self._found[kind]) for kind in LinkProblem if kind in self._found]
        return "; ".join(kind.value.format(count=f"{count:,}", example=example) for kind, count, example in ordered)
