"""Times as people write them: `2026-01-31`, `2026-01-31T12:00:00Z`, `5m ago`, `1h30m ago`, or milliseconds; times to
come: `in 5m`; and durations: `500ms`, `30` or `30s`, `1h30m`, `4d`."""

import re
from datetime import UTC, datetime, timedelta

from headrace.cli.errors import BadArgument

_AGO = re.compile(r"(?:(\d+)\s*d)?\s*(?:(\d+)\s*h)?\s*(?:(\d+)\s*m)?\s*(?:(\d+)\s*s)?\s*(?:ago)?", re.IGNORECASE)
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", re.IGNORECASE)
_MILLISECONDS = re.compile(r"(\d+)ms", re.IGNORECASE)
_IN = re.compile(r"^in\s+", re.IGNORECASE)
_EPOCH_MS = re.compile(r"\d{11,}")


def parse_time(text: str, now: datetime | None = None) -> int:
    """Milliseconds since the epoch. A time without a zone is local time."""
    cleaned = text.strip()
    ago = _AGO.fullmatch(cleaned)
    if ago is not None and any(ago.groups()):
        days, hours, minutes, seconds = (int(part or 0) for part in ago.groups())
        back = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return int(((now or datetime.now(UTC)) - back).timestamp() * 1000)
    if (found_ms := _absolute_ms(cleaned)) is not None:
        return found_ms
    raise BadArgument(f"{text!r} is not a time: write 2026-01-31T12:00, '5m ago' or '1h30m ago'")


def parse_time_to_come(text: str, now: datetime | None = None) -> int:
    """The same for what is to happen: a duration counts from now on."""
    cleaned = text.strip()
    if (found_ms := _absolute_ms(cleaned)) is not None:
        return found_ms
    try:
        later_s = parse_duration(_IN.sub("", cleaned))
        return int(((now or datetime.now(UTC)).timestamp() + later_s) * 1000)
    except BadArgument:
        raise BadArgument(f"{text!r} is not a time to come: write 2030-01-31T12:00 or 'in 1h30m'") from None


def _absolute_ms(cleaned: str) -> int | None:
    if _EPOCH_MS.fullmatch(cleaned):
        return int(cleaned)
    try:
        return int(datetime.fromisoformat(cleaned).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


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
