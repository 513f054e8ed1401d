"""The text of metrics: Prometheus' format 0.0.4 and OpenMetrics 1.0, rendered in slices. Pure.

The formats differ in the media type, the names in comments (OpenMetrics has no `_total` and `_info` there), units, and
the last line. A slice ends when its time is used up, so that a scrape of 100,000 samples does not hold the event loop:
the caller yields to the loop between two slices.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from math import inf, isnan

from headrace.observe.families import Metric, MetricFamily, MetricKind, Sample
from headrace.observe.histogram import Histogram

SLICE_S = 0.002
"""After this time a slice ends, checked each `_CHECK_EVERY` lines."""
_CHECK_EVERY = 32
_OPENMETRICS_MEDIA = "application/openmetrics-text"
_UNITS = ("seconds", "bytes")
_SUFFIXES = {MetricKind.COUNTER: "_total", MetricKind.INFO: "_info"}


class TextFormat(Enum):
    """A format, with its content type."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = f"{_OPENMETRICS_MEDIA}; version=1.0.0; charset=utf-8"


def negotiated(accept: str) -> TextFormat:
    """The format for the value of an Accept header: OpenMetrics 1.0 if it is preferred, else Prometheus'."""
    best, best_quality = TextFormat.PROMETHEUS, 0.0
    for part in accept.split(",")[:32]:
        media, *parameters = (each.strip().lower() for each in part.split(";"))
        given = dict(each.partition("=")[::2] for each in parameters)
        if media == _OPENMETRICS_MEDIA and given.get("version", "1.0.0") in ("1.0.0", "1.0"):
            found = TextFormat.OPENMETRICS
        elif media in ("text/plain", "text/*", "*/*"):
            found = TextFormat.PROMETHEUS
        else:
            continue
        quality = _quality(given.get("q", "1"))
        if quality > best_quality:
            best, best_quality = found, quality
    return best


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def rendered(
    families: Iterable[MetricFamily],
    text_format: TextFormat,
    now_s: Callable[[], float],
    failed: Callable[[Metric, Exception], None],
) -> Iterator[bytes]:
    """Yield the text in slices. A metric whose samples cannot be collected is left out, and `failed` is called."""
    lines: list[str] = []
    began_s = now_s()
    for metric, samples in families:
        lines.append(_comments(metric, text_format))
        try:
            for line in _lines(metric, samples):
                lines.append(line)
                if len(lines) % _CHECK_EVERY == 0 and now_s() - began_s > SLICE_S:
                    yield "".join(lines).encode()
                    lines.clear()
                    began_s = now_s()
        except Exception as error:
            failed(metric, error)
    if text_format is TextFormat.OPENMETRICS:
        lines.append("# EOF\n")
    yield "".join(lines).encode()


def _comments(metric: Metric, text_format: TextFormat) -> str:
    name, kind, unit = metric.name, metric.kind.value, ""
    if text_format is TextFormat.OPENMETRICS:
        name = name.removesuffix(_SUFFIXES.get(metric.kind, ""))
        unit = "".join(f"# UNIT {name} {unit}\n" for unit in _UNITS if name.endswith(f"_{unit}"))
    elif metric.kind is MetricKind.INFO:
        kind = MetricKind.GAUGE.value
    text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{unit}"


def _lines(metric: Metric, samples: Iterable[Sample]) -> Iterator[str]:
    name = metric.name
    for labels, value in samples:
        if type(value) is int:
            yield f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n"
        elif isinstance(value, Histogram):
            yield _histogram_lines(name, labels, value)
        else:
            text = _number(value)
            yield f"{name}{{{labels}}} {text}\n" if labels else f"{name} {text}\n"


def _histogram_lines(name: str, labels: str, value: Histogram) -> str:
    before = f"{labels}," if labels else ""
    braced = f"{{{labels}}}" if labels else ""
    lines = []
    count = 0
    for bound, count in value.cumulative():
        lines.append(f'{name}_bucket{{{before}le="{_number(bound)}"}} {count}\n')
    lines.append(f"{name}_count{braced} {count}\n{name}_sum{braced} {_number(value.total)}\n")
    return "".join(lines)


def _number(value: float) -> str:
    if value == inf:
        return "+Inf"
    if value == -inf:
        return "-Inf"
    if isnan(value):
        return "NaN"
    return repr(value) if isinstance(value, float) else str(int(value))
