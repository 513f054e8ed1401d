"""Times as people write them: `2026-01-31`, `2026-01-31T12:00:00Z`, `5m ago`, `1h30m ago`, or milliseconds; and
durations: `500ms`, `30` or `30s`, `1h30m`, `4d`."""

import re
from datetime import UTC, datetime, timedelta

from headrace.cli.errors import BadArgument

_AGO = re.compile(r"(?:(\d+)\s*d)?\s*(?:(\d+)\s*h)?\s*(?:(\d+)\s*m)?\s*(?:(\d+)\s*s)?\s*(?:ago)?", re.IGNORECASE)
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", re.IGNORECASE)
_MILLISECONDS = re.compile(r"(\d+)ms", re.IGNORECASE)
_EPOCH_MS = re.compile(r"\d{11,}")


def parse_time(text: str, now: datetime | None = None) -> int:
    """Milliseconds since the epoch. A time without a zone is local time."""
    cleaned = text.strip()
    if _EPOCH_MS.fullmatch(cleaned):
        return int(cleaned)
    ago = _AGO.fullmatch(cleaned)
    if ago is not None and any(ago.groups()):
        days, hours, minutes, seconds = (int(part or 0) for part in ago.groups())
        back = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return int(((now or datetime.now(UTC)) - back).timestamp() * 1000)
    try:
        return int(datetime.fromisoformat(cleaned).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise BadArgument(f"{text!r} is not a time: write 2026-01-31T12:00, '5m ago' or '1h30m ago'") from None


def parse_duration(text: str) -> float:
    """Seconds."""
    cleaned = text.strip().replace(" ", "")
    if (found := _MILLISECONDS.fullmatch(cleaned)) is not None:
        return int(found[1]) / 1000
    parts = _DURATION.fullmatch(cleaned)
    if parts is None or not any(parts.groups()):
        raise BadArgument(f"{text!r} is not a duration: write 500ms, 30s, 5m, 1h30m or 4d")
    days, hours, minutes, seconds = (float(part or 0) for part in parts.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
