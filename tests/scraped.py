"""The metrics of a broker, as a test reads them: scraped over HTTP and parsed by Prometheus' own client library."""

from collections.abc import Mapping
from urllib.request import Request, urlopen

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


class Scrape:
    """One scrape."""

    def __init__(self, text: str, families: list[Metric]) -> None:
        self.text = text
        self.families = {family.name: family for family in families}
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in families:
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self.samples, f"{key} is there twice"
                self.samples[key] = sample.value

    def __getitem__(self, name: str) -> float:
        """The value of a sample without labels."""
        return self.value(name)

    def value(self, name: str, default: float | None = None, /, **labels: str) -> float:
        """The value of the sample with exactly these labels."""
        found = self.samples.get((name, frozenset(labels.items())), default)
        assert found is not None, f"{name} {labels} is not among {self.of(name)}"
        return found

    def of(self, name: str, /, **labels: str) -> dict[tuple[str, ...], float]:
        """The samples of this name whose labels include these, by the values of their other labels in order."""
        wanted = labels.items()
        return {
            tuple(value for key, value in sorted(found) if key not in labels): value
            for (each, found), value in self.samples.items()
            if each == name and wanted <= set(found)
        }

    def sum(self, name: str, /, **labels: str) -> float:
        return sum(self.of(name, **labels).values())

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.samples}


def scrape(url: str, accept: str = "", headers: Mapping[str, str] | None = None) -> Scrape:
    """Scrape the broker with this URL of its HTTP port."""
    request = Request(f"{url}/metrics", headers={**({"Accept": accept} if accept else {}), **(headers or {})})
    with urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    parse = parse_openmetrics if "openmetrics" in accept else parse_prometheus
    return Scrape(text, list(parse(text)))
