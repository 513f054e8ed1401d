"""The figures that `headrace top` shows, from the HTTP API."""

from dataclasses import dataclass, field
from typing import Any

from headrace.cli.errors import CommandFailed
from headrace.cli.http_api import HttpApi
from headrace.cli.top.state import TopState


@dataclass(frozen=True, slots=True)
class TopFigures:
    name: str
    """The view."""
    overview: dict[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    total: int = 0

    def as_json(self) -> dict[str, Any]:
        shown = {key: self.overview[key] for key in ("at_ms", "health", "totals")}
        if self.name == "overview":
            return {"view": self.name, **self.overview}
        return {"view": self.name, **shown, "items": self.rows, "total": self.total}


class FigureSource:
    """Asks a broker, and after a failure looks for one that answers."""

    def __init__(self, bootstrap: str, http: str) -> None:
        self._bootstrap = bootstrap
        self._http = http
        self._api: HttpApi | None = None

    def get(self, state: TopState, per_page: int) -> TopFigures:
        """Raises `CommandFailed`."""
        if self._api is None:
            self._api = HttpApi(self._bootstrap, self._http)
        try:
            return self._figures(self._api, state, per_page)
        except CommandFailed:
            self._api = None
            raise

    @staticmethod
    def _figures(api: HttpApi, state: TopState, per_page: int) -> TopFigures:
        overview, view = api.get("/overview"), state.view
        if view is None:
            return TopFigures(state.name, overview)
        if view.is_paged:
            page = api.get(f"{view.path}?{state.query(per_page)}")
            return TopFigures(state.name, overview, page["items"], page["total"])
        rows = api.get(view.path)[view.items]
        wanted = state.search.casefold()
        found = [each for each in rows if wanted in str(each[view.name_key]).casefold()]
        start = (state.page - 1) * per_page
        return TopFigures(state.name, overview, _sorted(found, state)[start : start + per_page], len(found))


def _sorted(rows: list[dict[str, Any]], state: TopState) -> list[dict[str, Any]]:
    """Rows without a value, or whose values have no order, are last."""
    by = state.sorted_by
    known = [each for each in rows if isinstance(each.get(by), int | float | str)]
    others = [each for each in rows if not isinstance(each.get(by), int | float | str)]
    return sorted(known, key=lambda each: each[by], reverse=not state.is_ascending) + others
