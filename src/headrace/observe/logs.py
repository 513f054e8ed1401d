"""The log of a broker, as text for people or as JSON lines for programs (`log.format`).

    2026-11-17 12:00:00,123 WARNING a message (request 10.1.2.3:5555/42)

    {"time":"2026-11-17T12:00:00.123Z","level":"WARNING","logger":"headrace.kafka","message":"a message","broker_id":0,
     "request_id":"10.1.2.3:5555/42","client":"shop 10.1.2.3:5555"}

A line of JSON has at most `MAX_LINE_BYTES`: a longer message or stack is cut, and says so.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from headrace.observe.request_mark import LoggedRequest, current_request

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)
MAX_LINE_BYTES = 16 * 1024
"""Without the line break. Docker's log drivers split longer lines, which are then no JSON."""

_FORMAT = "%(asctime)s %(levelname)-7s %(message)s"
_MAX_TEXT = 8 * 1024
_MAX_NAME = 256
_LEAST_TEXT = 64
_CUT = " … "


def configure(
    level: str, stream: TextIO | None = None, *, log_format: str = TEXT, broker_id: int | None = None
) -> None:
    """Log to `stream`, by default to standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(broker_id) if log_format == JSON else TextFormatter(_FORMAT))
    root = logging.getLogger("headrace")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


class TextFormatter(logging.Formatter):
    """Time, level, message, and the id of the request that the line belongs to."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        line, request = super().formatMessage(record), _request(record)
        return line if request is None else f"{line} (request {request.request_id})"


class JsonFormatter(logging.Formatter):
    """A JSON object for each line. Further fields are those that a line gives as `extra={"fields": {…}}`."""

    def __init__(self, broker_id: int | None = None) -> None:
        super().__init__()
        self._broker_id = broker_id

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname,
            "logger": record.name,
            "message": "",
        }
        if self._broker_id is not None:
            fields["broker_id"] = self._broker_id
        request = _request(record)
        if request is not None:
            fields["request_id"] = _cut(request.request_id, _MAX_NAME)
            fields["client"] = _cut(request.client, _MAX_NAME)
        for name, value in getattr(record, "fields", {}).items():
            fields[name] = _cut(value, _MAX_NAME) if isinstance(value, str) else value
        message = record.getMessage()
        error = self._error(record)
        most = _MAX_TEXT
        while True:
            fields["message"] = _cut(message, most)
            if error:
                fields["error"] = _cut(error, most)
            line = msgspec.json.encode(fields)
            if len(line) <= MAX_LINE_BYTES or most <= _LEAST_TEXT:
                return line.decode()
            most //= 2  # Characters that are escaped, or that UTF-8 writes in several bytes.

    def _error(self, record: logging.LogRecord) -> str:
        """The stack and the exception, as one text."""
        parts = []
        if record.exc_info and record.exc_info[0] is not None:
            parts.append(self.formatException(record.exc_info))
        if record.stack_info:
            parts.append(self.formatStack(record.stack_info))
        return "\n".join(parts)


def _request(record: logging.LogRecord) -> LoggedRequest | None:
    """The request of a line: the one that it gives as `extra={"request": …}`, or the one that is being handled."""
    given: LoggedRequest | None = getattr(record, "request", None)
    return current_request() if given is None else given


def _cut(text: str, most: int) -> str:
    """The text, without its middle if it is longer: a stack begins with where and ends with why."""
    if len(text) > most:
        half = (most - len(_CUT)) // 2
        text = text[:half] + _CUT + text[-half:]
    return text.encode(errors="replace").decode()
