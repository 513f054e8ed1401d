"""What is measured: Headrace, Apache Kafka and the bare servers. The other peers are in `peers.py`.

A system is started once and kept for the whole run, so that a JIT compiler has its chance; it listens on loopback and
keeps its data in its own folder of the work dir. `Unavailable` says in one sentence what is missing.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path

from harness import wire
from harness.process import Process, ProcessFailed, cpu_s, free_port, rss_bytes

BENCH_DIR = Path(__file__).resolve().parent.parent
CACHE_DIR = BENCH_DIR.parent / ".cache" / "bench"
_BARE_ANSWER_BYTES = 64


class Unavailable(Exception):
    """A system that cannot be had here, and what to do about it."""


class System(ABC):
    name: str
    is_kafka_protocol = False
    ready_timeout_s = 60.0

    def __init__(self, work_dir: Path) -> None:
        self.dir = work_dir / self.name
        self.dir.mkdir(parents=True, exist_ok=True)
        self.log = self.dir / "output.log"
        self.port = 0
        self.http_port = 0
        """Where queues are served over HTTP, if anywhere."""
        self.ready_s = 0.0
        self._process: Process | None = None

    @abstractmethod
    def _launch(self) -> Process:
        """Start the process on `self.port`."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether a client would be served now."""

    def version(self) -> str:
        return ""

    def start(self) -> None:
        """Start and wait until it serves; `ready_s` is the time this took."""
        self.port = self._choose_port()
        begin = time.perf_counter()
        self._process = self._launch()
        while not self._is_ready():
            self._process.check()
            if time.perf_counter() - begin > self.ready_timeout_s:
                raise ProcessFailed(f"{self.name} was not ready in time: {self._process.last_output()}")
            time.sleep(0.005)
        self.ready_s = time.perf_counter() - begin

    def _choose_port(self) -> int:
        return free_port()

    def stop(self) -> float:
        if self._process is None:
            return 0.0
        process, self._process = self._process, None
        return process.stop()

    def is_running(self) -> bool:
        return self._process is not None and self._process.is_running()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def cpu_s(self) -> float:
        return cpu_s(self.pid)

    def rss_bytes(self) -> int:
        return rss_bytes(self.pid)

    def address(self, listener: str) -> dict[str, object]:
        """The options of a load process that say where and how to connect."""
        if listener:
            raise ValueError(f"{self.name} has no listener {listener}")
        return {"port": self.port}

    def clear(self) -> None:
        """Remove all data; the system is stopped."""
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)


def answers(port: int, request: bytes, *, expect: Callable[[bytes], bool] = bool) -> bool:
    """Whether something on the port answers this request."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as sock:
            if request:
                sock.sendall(request)
            return expect(sock.recv(4096))
    except OSError:
        return False


class Headrace(System):
    name = "headrace"
    is_kafka_protocol = True

    def __init__(
        self, work_dir: Path, command: list[str] | None = None, *, env: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(work_dir)
        self._env = dict(env or {})
        script = Path(sys.executable).parent / "headrace"
        self._command = command or ([str(script)] if script.exists() else [sys.executable, "-m", "headrace"])

    def version(self) -> str:
        done = subprocess.run(
            [sys.executable, "-c", "import headrace; print(getattr(headrace, '__version__', ''))"],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip()

    def _launch(self) -> Process:
        data = self.dir / "data"
        self.http_port = free_port()
        where = ["--data-dir", str(data), "--kafka-listen", f"127.0.0.1:{self.port}"]
        where += ["--http-listen", f"127.0.0.1:{self.http_port}"]
        settings = [word for name, value in self._settings().items() for word in ("--set", f"{name}={value}")]
        return Process([*self._command, "serve", *where, *settings], self.log, env=self._env)

    def environment(self) -> dict[str, str]:
        return {**os.environ, **self._env}

    def _settings(self) -> dict[str, object]:
        return {}

    def _is_ready(self) -> bool:
        return answers(self.port, wire.api_versions_request())


class Kafka(System):
    """Apache Kafka, broker and controller in one process, with its own defaults and its start script's JVM options."""

    name = "kafka"
    is_kafka_protocol = True
    _cluster_id = "AAAAAAAAAAAAAAAAAAAAAQ"
    _jvm = (
        "-Xmx1G",
        "-Xms1G",
        "-server",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent",
        "-Djava.awt.headless=true",
    )

    def __init__(self, work_dir: Path, libs: Path | None = None) -> None:
        super().__init__(work_dir)
        need_java()
        self._libs = libs or self.libraries()

    def version(self) -> str:
        jars = list(self._libs.glob("kafka-clients-*.jar"))
        return jars[0].stem.removeprefix("kafka-clients-") if jars else ""

    @staticmethod
    def libraries() -> Path:
        return jars("kafka", "Apache Kafka")

    def _java(self, *arguments: str) -> list[str]:
        classpath = f"{BENCH_DIR / 'kafka'}:{self._libs}/*"
        return ["java", *self._jvm, f"-Dkafka.logs.dir={self.dir}", "-cp", classpath, *arguments]

    def start(self) -> None:
        """Formatting the storage of a new node is a step of its own in Kafka and not part of the time to ready."""
        self.port = free_port()
        properties = self.dir / "server.properties"
        data = self.dir / "data"
        if not data.exists():
            self._write_properties(properties, controller_port=free_port())
            self._format(properties)
        super().start()

    def _format(self, properties: Path) -> None:
        command = self._java("kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(properties))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ProcessFailed(f"Kafka's storage could not be formatted: {done.stderr.strip()[-300:]}")

    def _write_properties(self, path: Path, controller_port: int) -> None:
        """Only what one node on loopback needs; everything else stays at Kafka's defaults."""
        lines = [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{controller_port}",
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            f"log.dirs={self.dir / 'data'}",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "share.coordinator.state.topic.replication.factor=1",
            "share.coordinator.state.topic.min.isr=1",
        ]
        path.write_text("\n".join(lines) + "\n")

    def _launch(self) -> Process:
        self._write_properties(self.dir / "server.properties", controller_port=free_port())
        return Process(self._java("kafka.Kafka", str(self.dir / "server.properties")), self.log)

    def _is_ready(self) -> bool:
        return answers(self.port, wire.api_versions_request())


class Bare(System):
    """A bare server of `floor.c`."""

    def __init__(self, work_dir: Path, name: str, mode: str, how: str, *, send_buffer_bytes: int = -1) -> None:
        self.name = name
        super().__init__(work_dir)
        self._program = compiled_floor(work_dir)
        self._mode, self._how = mode, how
        self._send_buffer_bytes = send_buffer_bytes
        self.piece_bytes = _BARE_ANSWER_BYTES
        """What it answers with; another size counts from the next start on."""
        self.file = self.dir / "bytes"

    def _launch(self) -> Process:
        words = (self.port, self.file, self._send_buffer_bytes, self.piece_bytes)
        return Process([str(self._program), self._mode, *map(str, words), self._how], self.log)

    def _is_ready(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
        except OSError:
            return False
        return True


def compiled_floor(work_dir: Path) -> Path:
    """The program of the bare servers, compiled the first time; `Unavailable` where there is no compiler."""
    program = work_dir / "floor"
    if program.exists():
        return program
    compiler = shutil.which("cc")
    if compiler is None:
        raise Unavailable("there is no C compiler (Debian: gcc and libc6-dev), so there is no physical limit either")
    command = [compiler, "-O2", "-pthread", "-o", str(program), str(BENCH_DIR / "floor.c")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(
            f"floor.c could not be compiled: {(done.stderr.strip().splitlines() or ['no reason given'])[0]}"
        )
    return program


def evict(folder: Path) -> None:
    """Drop the files below a folder from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(fd)  # Only what is on disk can be dropped.
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def need_java() -> None:
    if shutil.which("java") is None:
        raise Unavailable("Java is not installed (Debian: openjdk-17-jre-headless)")


def jars(name: str, what: str) -> Path:
    """The jars of `bench/<name>/pom.xml` in the cache dir, fetched by Maven the first time."""
    libs = CACHE_DIR / name / "libs"
    pom = BENCH_DIR / name / "pom.xml"
    done = libs.parent / "pom.xml"
    if done.exists() and done.read_text() == pom.read_text():
        return libs
    if shutil.which("mvn") is None:
        raise Unavailable(f"Maven is not installed (Debian: maven), so {what} cannot be fetched")
    print(f"fetching {what} with Maven (once)", flush=True)
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={libs}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        last = [line for line in result.stdout.splitlines() if "ERROR" in line][:1] or ["no reason given"]
        raise Unavailable(f"Maven could not fetch {what}: {last[0]}")
    shutil.copy(pom, done)
    return libs


def apt_binary(name: str, package: str) -> str:
    """The path of a peer's program, or `Unavailable` with the Debian package that has it."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if path is None:
        raise Unavailable(f"{name} is not installed (Debian: {package})")
    return path
