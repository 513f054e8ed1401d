"""Metrics as they are declared, and their samples as a scrape collects them. Pure.

A metric is declared once, as a constant of the module that collects it:

    FREE = gauge("headrace_disk_free_bytes", "Free space of the volume of the data directory.")

and a collector returns `FREE.family([("", volume.usable_bytes)])`. Names are an interface: dashboards and alerts use
them, so they are never changed or given another meaning.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from headrace.observe.histogram import Histogram

Sample = tuple[str, "int | float | Histogram"]
"""The text of the labels, which `label_text` makes, and the value."""


class MetricKind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"
    """A constant 1 whose labels are the information."""


@dataclass(frozen=True, slots=True)
class Metric:
    """The declaration of a metric."""

    name: str
    """As it is in the text format: a counter ends in `_total`, an info in `_info`."""
    kind: MetricKind
    help: str
    """One sentence."""
    labels: tuple[str, ...] = ()

    def family(self, samples: Iterable[Sample]) -> "MetricFamily":
        """The metric with its samples. An iterator is consumed while the text is rendered, in slices."""
        return MetricFamily(self, samples)

    def single(self, value: "int | float | Histogram") -> "MetricFamily":
        """The metric with one sample without labels."""
        return MetricFamily(self, (("", value),))

    def label_text(self, *values: object) -> str:
        """The text of this metric's labels with these values."""
        return label_text(self.labels, values)


class MetricFamily(NamedTuple):
    """A metric with its samples."""

    metric: Metric
    samples: Iterable[Sample]


def counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.COUNTER, text, labels)


def gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.GAUGE, text, labels)


def histogram(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.HISTOGRAM, text, labels)


def info(name: str, text: str, *labels: str) -> Metric:
    return Metric(name, MetricKind.INFO, text, labels)


def escaped(value: str) -> str:
    """A label's value with backslashes, quotation marks and line breaks escaped."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def label_text(names: Sequence[str], values: Sequence[object]) -> str:
    """Labels as both formats write them, without braces: `topic="orders",partition="0"`."""
    return ",".join([f'{name}="{escaped(str(value))}"' for name, value in zip(names, values, strict=True)])
