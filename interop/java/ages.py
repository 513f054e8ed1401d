"""Kafka's Java clients of several ages, driven by `Ages.java`: each refuses other things that a broker may say."""

from pathlib import Path

from apache import CACHE_DIR, HERE, Java, fetch
from clients import add_checks
from report import Report

_SOURCE = HERE / "Ages.java"
_VERSIONS = ("2.0.1", "2.4.1", "2.7.2", "2.8.2", "3.0.2", "3.2.3", "3.3.2", "3.6.2", "3.7.2", "3.9.1", "4.0.0")
"""Some that are still met in the field. Kafka 4 has ended the support of clients before 2.1, and most of 2.0 works."""

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace.interop</groupId>
  <artifactId>kafka-clients-of-an-age</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-clients</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


def check_ages(report: Report, bootstrap: str) -> None:
    """Against a broker with the id 0."""
    for version in _VERSIONS:
        ran = Java(_libraries(version)).run(_SOURCE, bootstrap, f"age-{version}")
        seen = add_checks(report, ran.out, f"kafka-clients {version}")
        if ran.code or not seen:
            report.add(f"kafka-clients {version}: {_SOURCE.name} runs to its end", str(ran))


def _libraries(version: str) -> Path:
    folder = CACHE_DIR.parent / "kafka-clients" / version
    pom = folder / "pom.xml"
    if not pom.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / "draft.xml"
        draft.write_text(_POM.format(version=version))
        fetch(draft, folder / "libs")
        draft.rename(pom)
    return folder / "libs"
