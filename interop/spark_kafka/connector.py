"""Spark's own Kafka connector from Maven, and a Spark of the same version for it.

The connector is built against one version of Spark and reaches into its insides. Where the installed PySpark is another
one, `prepare` has pip fetch PySpark of the connector's version into the cache and puts it first on the path, for this
process and for Spark's workers. So `prepare` comes before anything imports pyspark.
"""

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
CACHE_DIR = HERE.parents[1] / ".cache" / "spark-kafka"
_POM = HERE / "pom.xml"
_FETCH_TIMEOUT_S = 900.0


class Unavailable(Exception):
    """The connector cannot be had here; the message is one sentence that says what is missing."""


class Connector(NamedTuple):
    version: str
    """Of the connector and of the Spark that it runs in."""
    libs: Path

    @property
    def settings(self) -> dict[str, str]:
        """What a Spark session needs to find it."""
        return {"spark.driver.extraClassPath": f"{self.libs}/*"}


def prepare() -> Connector:
    """The connector, fetched the first time, with the right PySpark on the path."""
    if "pyspark" in sys.modules:
        raise RuntimeError("the version of PySpark has to be chosen before it is imported")
    if shutil.which("java") is None:
        raise Unavailable("Java is not installed (Debian: openjdk-17-jre-headless)")
    version = ElementTree.parse(_POM).findtext(".//{*}spark.version") or ""
    libs = _fetched_jars()
    if metadata.version("pyspark") != version:
        _put_first(_fetched_pyspark(version))
    return Connector(version, libs)


def _fetched_jars() -> Path:
    libs, done = CACHE_DIR / "libs", CACHE_DIR / "pom.xml"
    if done.exists() and done.read_text() == _POM.read_text():
        return libs
    if shutil.which("mvn") is None:
        raise Unavailable("Maven is not installed (Debian: maven), so the connector cannot be fetched")
    print("fetching Spark's Kafka connector with Maven (once)", file=sys.stderr, flush=True)
    shutil.rmtree(libs, ignore_errors=True)
    said = _run(["mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies", f"-DoutputDirectory={libs}"])
    if said is not None:
        raise Unavailable(f"Maven could not fetch the connector: {said}")
    shutil.copy(_POM, done)
    return libs


def _fetched_pyspark(version: str) -> Path:
    home = CACHE_DIR / f"pyspark-{version}"
    if home.exists():
        return home
    print(f"fetching PySpark {version} with pip, as new as the connector (once)", file=sys.stderr, flush=True)
    unfinished = CACHE_DIR / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    # What it needs is what the installed one needs.
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(unfinished)]
    said = _run([*pip, f"pyspark=={version}"])
    if said is not None:
        raise Unavailable(f"pip could not fetch PySpark {version}: {said}")
    unfinished.rename(home)
    return home


def _run(command: list[str]) -> str | None:
    """None if all went well, else what was wrong in one line."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return f"no end after {_FETCH_TIMEOUT_S:.0f} s"
    if not done.returncode:
        return None
    lines = (done.stdout + done.stderr).splitlines()
    return next((line.strip() for line in lines if "ERROR" in line), "no reason given")


def _put_first(folder: Path) -> None:
    sys.path.insert(1, str(folder))
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{folder}{os.pathsep}{others}" if others else str(folder)
    os.environ["SPARK_HOME"] = str(folder / "pyspark")
