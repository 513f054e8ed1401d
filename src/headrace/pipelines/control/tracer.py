"""The seam between pipelines and OpenTelemetry, which is imported only where it is installed."""

from typing import TYPE_CHECKING

from headrace.client.tracer import is_wanted
from headrace.pipelines.spec.model import Spec

if TYPE_CHECKING:
    from headrace.pipelines.control.spans import PipelineSpans


def pipeline_spans(spec: Spec) -> "PipelineSpans | None":
    """The spans of a run; None without OpenTelemetry, where it is not wanted, or without a provider."""
    if not is_wanted():
        return None
    from headrace.client.otel import is_provider_set
    from headrace.pipelines.control.spans import PipelineSpans

    return PipelineSpans(spec) if is_provider_set() else None
