"""The last hour of an object, as the API shows it."""

import msgspec

from headrace.admin.routes import AdminRequest


class HistoryView(msgspec.Struct, frozen=True):
    step_s: int
    end_ms: int
    """The time of the last point."""
    series: dict[str, list[float | None]]
    """By name, oldest first; null where nothing is known."""


async def history_of(request: AdminRequest, kind: str, name: str = "") -> HistoryView:
    found = await request.services.monitor.history(kind, name)
    if not request.is_live:
        return HistoryView(found.step_s, found.end_ms, found.series)
    newest = {each: points[-1:] for each, points in found.series.items()}
    return HistoryView(found.step_s, found.end_ms, newest)
