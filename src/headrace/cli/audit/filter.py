"""Which events of the audit log are printed, and their columns. Pure."""

from dataclasses import dataclass
from typing import Any

REFUSED = frozenset({"denied", "failure"})
"""The outcomes that `--denied` shows, of failures only those of logins."""
_TYPE_PREFIX = "dev.headrace."
GAP = "audit.gap"

COLUMNS = [
    ("TIME", "left"),
    ("OUTCOME", "left"),
    ("PRINCIPAL", "left"),
    ("HOST", "left"),
    ("ACTION", "left"),
    ("RESOURCE", "left"),
    ("TIMES", "right"),
    ("DETAILS", "left"),
]


@dataclass(frozen=True, slots=True)
class AuditFilter:
    principal: str | None = None
    resource: str | None = None
    action: str | None = None
    outcomes: frozenset[str] = frozenset()
    event_class: str | None = None

    def matches(self, event: dict[str, Any]) -> bool:
        """A gap is always shown: what is looked for may be in it."""
        kind, data = class_of(event), event.get("data", {})
        if kind == GAP:
            return True
        if self.outcomes == REFUSED and data.get("outcome") == "failure" and kind != "authentication":
            return False
        return (
            (self.principal is None or data.get("principal") in (self.principal, f"User:{self.principal}"))
            and (self.resource is None or self.resource in (data.get("resourceName"), event.get("subject")))
            and (self.action is None or str(data.get("action", "")).lower() == self.action.lower())
            and (not self.outcomes or data.get("outcome") in self.outcomes)
            and (self.event_class is None or kind == self.event_class)
        )


def class_of(event: dict[str, Any]) -> str:
    return str(event.get("type", "")).removeprefix(_TYPE_PREFIX)


def row(event: dict[str, Any]) -> tuple[Any, ...]:
    """The columns of an event."""
    data = event.get("data", {})
    if class_of(event) == GAP:
        return (event.get("time", ""), "gap", "", "", "", "", data.get("dropped", ""), data.get("message", ""))
    return (
        event.get("time", ""),
        data.get("outcome", ""),
        data.get("principal", ""),
        data.get("host", ""),
        data.get("action", ""),
        event.get("subject", ""),
        data.get("count", 1),
        _details(data),
    )


def _details(data: dict[str, Any]) -> str:
    parts = [data[name] for name in ("errorCode", "rule", "reason") if data.get(name)]
    request: dict[str, Any] = data.get("request", {})
    parts += [f"{name}={_text(value)}" for name, value in request.items() if value not in ({}, [], None)]
    return "; ".join(map(str, parts))


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_text(each)}" for name, each in value.items()) + "}"
    return "…" if value is None else str(value)
