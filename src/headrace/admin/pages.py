"""Lists of the HTTP API: searched, sorted and cut into pages on the server. Pure."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from headrace.admin.errors import AdminError

MAX_PER_PAGE = 500
_MAX_SEARCH_CHARACTERS = 256

T = TypeVar("T", bound=msgspec.Struct)


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


def page_of(items: Sequence[T], query: PageQuery, *, name: str) -> Page[T]:
    """One page. `name` is the field that is searched, and sorted by unless the query says another."""
    wanted = query.search.casefold()
    if wanted:
        items = [each for each in items if wanted in str(getattr(each, name)).casefold()]
    ordered = _sorted(items, query.sort or name, name, is_descending=query.order == "desc")
    start = (query.page - 1) * query.per_page
    return Page(ordered[start : start + query.per_page], len(ordered), query.page, query.per_page)


def _sorted(items: Sequence[T], by: str, name: str, *, is_descending: bool) -> list[T]:
    """Sort by a field, items without a value last in both orders, and equal ones by their name."""
    if not items:
        return []
    if by not in items[0].__struct_fields__ or isinstance(getattr(items[0], by), list | dict):
        known = ", ".join(each for each in items[0].__struct_fields__ if not isinstance(getattr(items[0], each), list))
        raise AdminError(400, "invalid_request", f"this list has no field {by} to sort by: {known}")
    ordered = sorted(items, key=attrgetter(name))
    value_of = attrgetter(by)
    known_items = [each for each in ordered if value_of(each) is not None]
    unknown = [each for each in ordered if value_of(each) is None]
    try:
        known_items.sort(key=value_of, reverse=is_descending)
    except TypeError:
        raise AdminError(400, "invalid_request", f"this list cannot be sorted by {by}") from None
    return known_items + unknown
