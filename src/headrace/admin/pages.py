"""Lists of the HTTP API: searched, sorted and cut into pages on the server. Pure.

Only the items of the page that is asked for are made into what is shown, so that a list of 15,000 costs little more
than its sorting.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from headrace.admin.errors import AdminError

MAX_PER_PAGE = 500
AT_ONCE = 500
"""Items of a list that are filtered between two looks at the clock."""
_MAX_SEARCH_CHARACTERS = 256

T = TypeVar("T", bound=msgspec.Struct)
S = TypeVar("S")


class PageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which part of a list is wanted."""

    search: Annotated[str, Meta(max_length=_MAX_SEARCH_CHARACTERS, description="Part of a name, in any case.")] = ""
    sort: Annotated[str, Meta(max_length=64, description="The field to sort by.")] = ""
    order: Literal["asc", "desc"] = "asc"
    page: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    per_page: Annotated[int, Meta(ge=1, le=MAX_PER_PAGE)] = 50


class Page(msgspec.Struct, Generic[T], frozen=True):
    items: list[T]
    total: int
    """How many items the whole list has, after the search."""
    page: int
    per_page: int


class Listing(Generic[S, T]):
    """How a kind of items is searched, sorted and shown."""

    def __init__(
        self,
        shown: type[T],
        show: Callable[[S], T],
        *,
        name: str,
        values: Mapping[str, Callable[[S], Any]] | None = None,
    ) -> None:
        """`name` is the attribute that is searched, and sorted by unless a query says another.

        `values` has the fields of what is shown that are not attributes of the items by the same name.
        """
        self._show = show
        self._name = attrgetter(name)
        fields = {each: attrgetter(each) for each in shown.__struct_fields__}
        self._values: dict[str, Callable[[S], Any]] = {**fields, **(values or {})}
        self._default = name

    def page(self, items: Sequence[S], query: PageQuery) -> Page[T]:
        wanted, name = query.search.casefold(), self._name
        if wanted:
            items = [each for each in items if wanted in name(each).casefold()]
        ordered = self._sorted(items, query.sort or self._default, is_descending=query.order == "desc")
        start = (query.page - 1) * query.per_page
        shown = [self._show(each) for each in ordered[start : start + query.per_page]]
        return Page(shown, len(ordered), query.page, query.per_page)

    def _sorted(self, items: Sequence[S], by: str, *, is_descending: bool) -> list[S]:
        """Sort by a field, items without a value last in both orders, and equal ones by their name."""
        value_of = self._values.get(by)
        if value_of is None:
            known = ", ".join(sorted(self._values))
            raise AdminError(400, "invalid_request", f"this list has no field {by} to sort by, but {known}")
        ordered = sorted(items, key=self._name)
        if by == self._default and not is_descending:
            return ordered
        values = [*map(value_of, ordered)]
        places = [at for at, value in enumerate(values) if value is not None]
        try:
            places.sort(key=values.__getitem__, reverse=is_descending)
        except TypeError:
            raise AdminError(400, "invalid_request", f"this list cannot be sorted by {by}") from None
        if len(places) < len(values):
            places += [at for at, value in enumerate(values) if value is None]
        return [ordered[at] for at in places]
