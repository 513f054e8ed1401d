"""The seam between the SDK and OpenTelemetry: None where that is not installed, and then nothing of it is imported.

Every place of the SDK that makes a span has one attribute, `tracing`, and tests whether it is None. What a span is
called, which attributes it has and what it is linked with is in `otel.py`.
"""

import os
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.client.otel import MessagingTracer

_DISABLED = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
"""OpenTelemetry's variable with the names of instrumentations that are not wanted, by commas."""
_NAME = "headrace"


def messaging_tracer(bootstrap: str, client_id: str) -> "MessagingTracer | None":
    """The tracer of a client; None without OpenTelemetry, or where it is not wanted."""
    if not is_wanted():
        return None
    from headrace.client.otel import MessagingTracer

    return MessagingTracer(bootstrap, client_id)


def is_wanted() -> bool:
    """Whether OpenTelemetry is installed, and not turned off for Headrace."""
    return _is_installed() and _NAME not in (each.strip() for each in os.environ.get(_DISABLED, "").split(","))


@cache
def _is_installed() -> bool:
    if find_spec("opentelemetry") is None:
        return False
    try:
        # The name alone may be there from another package of OpenTelemetry.
        import opentelemetry.metrics
        import opentelemetry.trace.propagation.tracecontext  # noqa: F401
    except ImportError:
        return False
    return True
