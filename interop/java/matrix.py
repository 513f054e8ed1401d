"""Every minor version of Apache Kafka's Java clients since 2.0 against a real `headrace serve` process.

    python interop/java/matrix.py            # all
    python interop/java/matrix.py 3.6.2      # some

Systems bundle clients of any age, and some refuse answers that others take. One line for each version, a summary, and
an exit code of 1 if one failed. A version that cannot be fetched is named; without Java or Maven it says so and ends
well.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

from apache import CACHE_DIR, HERE, Java, Unavailable, check_compiler, fetch
from report import Report, expect

from headrace.testing.process import BrokerProcess

VERSIONS = (
    ["2.0.1", "2.1.1", "2.2.2", "2.3.1", "2.4.1", "2.5.1", "2.6.3", "2.7.2", "2.8.2"]
    + ["3.0.2", "3.1.2", "3.2.3", "3.3.2", "3.4.1", "3.5.2", "3.6.2", "3.7.2", "3.8.1", "3.9.1"]
    + ["4.0.0", "4.1.0", "4.2.0", "4.3.0"]
)
_SOURCE = HERE / "AnyVersion.java"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace.interop</groupId><artifactId>kafka-clients-{version}</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""


def libraries(version: str) -> Path:
    """The jars of one version, which Maven fetches into the cache the first time."""
    folder = CACHE_DIR.parent / "kafka-clients" / version
    folder.mkdir(parents=True, exist_ok=True)
    pom = folder / "pom.xml"
    text = _POM.format(version=version)
    if not pom.exists() or pom.read_text() != text or not (folder / "fetched").exists():
        pom.write_text(text)
        fetch(pom, folder / "libs", f"kafka-clients {version}")
        (folder / "fetched").touch()
    return folder / "libs"


def compiled(libs: Path) -> Path:
    """The program, compiled once with the oldest clients, so that it uses nothing that those have not."""
    classes = CACHE_DIR.parent / "kafka-clients" / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    command = ["javac", "-nowarn", "-d", str(classes), "-cp", f"{libs}/*", str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    expect(done.returncode == 0, done.stderr)
    return classes


def main(versions: list[str]) -> int:
    report = Report()
    try:
        check_compiler()
        classes = compiled(libraries(VERSIONS[0]))
    except Unavailable as reason:
        print(f"Kafka's Java clients are not checked: {reason}.")
        return 0
    with tempfile.TemporaryDirectory(prefix="headrace-java-") as scratch:
        settings = {"group.initial.rebalance.delay.ms": 0}
        with BrokerProcess(Path(scratch) / "data", settings=settings) as broker:
            for version in versions:
                try:
                    java = Java(libraries(version), classes)
                except Unavailable as reason:
                    print(f"not tried: kafka-clients {version}: {reason}", flush=True)
                    continue
                with report.check(f"kafka-clients {version}: connect, produce, consume in a group, a transaction"):
                    ran = java.run("AnyVersion", broker.bootstrap)
                    expect(ran.code == 0 and ran.out == "ok\n", ran)
    print(report.summary(), flush=True)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or VERSIONS))
