"""Apache Kafka's jars from Maven, and its command-line tools as processes of their own."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
POM = HERE / "pom.xml"
CACHE_DIR = ROOT / ".cache" / "kafka-tools"

# The tools live for a second: a JVM that is quick to start beats one that compiles well.
_JVM = ("-Xmx256m", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_TIMEOUT_S = 90.0


class Unavailable(Exception):
    """Kafka's tools cannot be run here; the message is one sentence that says what is missing."""


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def __str__(self) -> str:
        return f"exit code {self.code}\n{self.out}{self.err}".rstrip()


class Java:
    """Runs Java programs with Kafka's jars at hand."""

    def __init__(self, libs: Path, classes: Path = HERE, options: tuple[str, ...] = ()) -> None:
        self.libs = libs
        self._classes = classes
        self._options = options

    def with_options(self, *options: str) -> "Java":
        """One that gives further options to the JVM."""
        return Java(self.libs, self._classes, (*self._options, *options))

    @property
    def version(self) -> str:
        (jar,) = self.libs.glob("kafka-clients-*.jar")
        return jar.stem.removeprefix("kafka-clients-")

    def command(self, program: str | Path, *arguments: str) -> list[str]:
        """`program` is a main class or a Java source file."""
        return ["java", *_JVM, *self._options, "-cp", f"{self._classes}:{self.libs}/*", str(program), *arguments]

    def run(self, program: str | Path, *arguments: str, stdin: str = "") -> Ran:
        done = subprocess.run(
            self.command(program, *arguments),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )
        return Ran(done.returncode, done.stdout, done.stderr)


def java(pom: Path = POM) -> Java:
    """Java with the jars of a pom, which Maven fetches into the cache the first time."""
    check_compiler()
    return Java(_libraries(pom))


def check_compiler() -> None:
    """`Unavailable` unless Java programs can be compiled and run here."""
    if shutil.which("java") is None:
        raise Unavailable("Java is not installed (Debian: default-jdk-headless)")
    modules = subprocess.run(["java", "--list-modules"], capture_output=True, text=True, check=False).stdout
    if "jdk.compiler" not in modules:
        raise Unavailable("Java is installed without its compiler (Debian: default-jdk-headless)")


def _libraries(pom: Path) -> Path:
    cache = CACHE_DIR if pom == POM else CACHE_DIR.parent / f"kafka-{pom.parent.name}"
    libs, done = cache / "libs", cache / "pom.xml"
    if done.exists() and done.read_text() == pom.read_text():
        return libs
    fetch(pom, libs, "Apache Kafka's tools")
    shutil.copy(pom, done)
    return libs


def fetch(pom: Path, libs: Path, what: str) -> None:
    """The jars that a pom names, into a folder."""
    if shutil.which("mvn") is None:
        raise Unavailable(f"Maven is not installed (Debian: maven), so {what} cannot be fetched")
    print(f"fetching {what} with Maven (once)", flush=True)
    shutil.rmtree(libs, ignore_errors=True)
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False)
    if fetched.returncode:
        errors = [line for line in fetched.stdout.splitlines() if "ERROR" in line] or ["no reason given"]
        raise Unavailable(f"Maven could not fetch {what}: {errors[0]}")
