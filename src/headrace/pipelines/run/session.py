"""Starts Spark sessions for pipelines, after checking for PySpark and Java."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.model.extras import SPARK, require
from headrace.pipelines.errors import NotReady
from headrace.pipelines.spec.model import Spec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN = 17
_INSTALL_JAVA = "install one (on Debian: apt-get install openjdk-17-jre-headless) or point JAVA_HOME to it"
_CLUSTER_SHUFFLE_PARTITIONS = 8
_BRIEF_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""Options for a JVM that runs briefly: less JIT compilation, and no verification of Spark's bytecode."""
FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings for a few rows: generating code would take longer than interpreting. Plans differ from those of a run."""

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 4
"""


_WORKER_PYTHON = """\
#!/bin/sh
python_path=
IFS=:
for each in $PYTHONPATH; do
    case $each in
        */python/lib/pyspark.zip|*/python/lib/py4j-*-src.zip) ;;
        *) python_path=$python_path${{python_path:+:}}$each ;;
    esac
done
PYTHONPATH=$python_path exec {python} "$@"
"""


def check_ready(environment: Mapping[str, str] | None = None) -> None:
    """Raise `MissingExtra` without PySpark, and `NotReady` without a Java that it can use."""
    require(SPARK)
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    if java is None:
        raise NotReady(f"Spark needs Java {JAVA_VERSION_MIN} or newer and there is no java: {_INSTALL_JAVA}")
    try:
        found = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError as error:
        where = "JAVA_HOME points to" if home else "the java found is"
        raise NotReady(f"{where} {java}, which cannot be run ({error.strerror}): {_INSTALL_JAVA}") from None
    except subprocess.TimeoutExpired:
        raise NotReady(f"{java} -version did not answer within 30 seconds: {_INSTALL_JAVA}") from None
    version = java_version(found.stderr + found.stdout)
    if version is None:
        raise NotReady(f"{java} does not say which version it is: {_INSTALL_JAVA}")
    if version < JAVA_VERSION_MIN:
        raise NotReady(f"Spark needs Java {JAVA_VERSION_MIN} or newer and {java} is {version}: {_INSTALL_JAVA}")


def java_version(text: str) -> int | None:
    """Parse the output of `java -version`: 17 for `openjdk version "17.0.15"`, 8 for `"1.8.0_392"`."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])


def settings_for(spec: Spec, master: str) -> dict[str, str]:
    """Spark's settings: ours, for short micro-batches and UTC, overridden by those of the file."""
    cores = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)
    if cores is None:
        partitions = _CLUSTER_SHUFFLE_PARTITIONS
    else:
        partitions = (os.cpu_count() or 1) if cores[1] == "*" else int(cores[1] or 1)
    ours = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        # No checksum files in the checkpoint, and no shell process per rename.
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    }
    if cores is not None:
        # A local driver needs no other interface, and the host name may not resolve.
        ours |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return ours | {name: _text(value) for name, value in spec.spark.settings.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def start_session(
    spec: Spec,
    master: str | None,
    log_dir: Path,
    *,
    is_brief: bool = False,
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> "SparkSession":
    """Start a session for a pipeline. The JVM logs to `spark.log` in `log_dir`, of bounded size.

    A brief session starts faster and runs slower: it is for planning. The settings of the file override `defaults`.
    """
    check_ready()
    from pyspark.sql import SparkSession

    from headrace.pipelines.spark_errors import explain_error, mute_error_loggers

    mute_error_loggers()
    log_dir.mkdir(parents=True, exist_ok=True)
    log4j = log_dir / "log4j2.properties"
    log4j.write_text(_LOG4J.format(log=log_dir / "spark.log"))
    where = master or spec.spark.master
    settings = {**defaults, **settings_for(spec, where)}
    # By default Spark uses the first python3 on the path, which may lack our packages.
    os.environ.setdefault("PYSPARK_PYTHON", worker_python(log_dir) if where.startswith("local") else sys.executable)
    java = f"-Dlog4j2.configurationFile=file:{log4j} -Djdk.lang.Process.launchMechanism=VFORK"
    if is_brief:
        java += f" {_BRIEF_JAVA}"
    settings["spark.driver.extraJavaOptions"] = f"{java} {settings.get('spark.driver.extraJavaOptions', '')}".strip()
    builder = SparkSession.builder.master(where).appName(f"headrace-{spec.name}")
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with _output_to(log_dir / "spark.out"):
            spark = builder.getOrCreate()
    except Exception as error:
        raise NotReady(
            f"Spark did not start on {where}: {explain_error(error)} (see {log_dir / 'spark.log'})"
        ) from error
    for each in spec.spark.py_files:
        spark.sparkContext.addPyFile(str((spec.folder / each).resolve()))
    return spark


def worker_python(folder: Path) -> str:
    """A script that runs this Python for Spark's workers, with the installed PySpark.

    Spark puts a zip archive of PySpark first on the path, which every new process compiles again: that takes three
    times as long, and Spark gives up on a worker that does not connect within ten seconds.
    """
    script = folder / "worker-python"
    script.write_text(_WORKER_PYTHON.format(python=shlex.quote(sys.executable)))
    script.chmod(0o755)
    return str(script.absolute())


@contextmanager
def _output_to(file: Path) -> Iterator[None]:
    """Redirect the output of processes started in the block (the JVM) to a file."""
    saved = [os.dup(number) for number in (1, 2)]
    sys.stdout.flush()
    sys.stderr.flush()
    with file.open("wb") as out:
        for number in (1, 2):
            os.dup2(out.fileno(), number)
    try:
        yield
    finally:
        for number, old in zip((1, 2), saved, strict=True):
            os.dup2(old, number)
            os.close(old)
