"""NATS JetStream, RabbitMQ and Redis Streams as Debian packages them, with their own default settings; ElasticMQ, and
Redis with every write on disk, for what is compared with queues."""

import os
import subprocess
from pathlib import Path

from harness.process import Process, free_port
from harness.systems import System, Unavailable, answers, apt_binary, jars, need_java


def _need_client(module: str, package: str) -> None:
    try:
        __import__(module)
    except ImportError:
        raise Unavailable(f"the Python client {package} is not installed (see bench/requirements.txt)") from None


def _first_line(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip().partition("\n")[0]


class Nats(System):
    """One stream on file storage. JetStream's default is to sync the file every two minutes."""

    name = "nats"

    def __init__(self, work_dir: Path) -> None:
        super().__init__(work_dir)
        self._binary = apt_binary("nats-server", "nats-server")
        _need_client("nats", "nats-py")

    def version(self) -> str:
        return _first_line(self._binary, "--version").rpartition(" ")[2].lstrip("v")

    def _launch(self) -> Process:
        command = [self._binary, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.dir / "data")]
        return Process(command, self.log)

    def _is_ready(self) -> bool:
        return answers(self.port, b"", expect=lambda data: data.startswith(b"INFO"))


class Redis(System):
    """One stream. Redis by default answers from memory and snapshots in the background: a weaker promise."""

    name = "redis"
    _durability: tuple[str, ...] = ()

    def __init__(self, work_dir: Path) -> None:
        super().__init__(work_dir)
        self._binary = apt_binary("redis-server", "redis-server")
        _need_client("redis", "redis")

    def version(self) -> str:
        return _first_line(self._binary, "--version").partition("v=")[2].partition(" ")[0]

    def _launch(self) -> Process:
        data = self.dir / "data"
        data.mkdir(exist_ok=True)
        command = [self._binary, "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(data)]
        return Process([*command, *self._durability], self.log)

    def _is_ready(self) -> bool:
        return answers(self.port, b"PING\r\n", expect=lambda data: data.startswith(b"+PONG"))


class DurableRedis(Redis):
    """Redis that answers a write when it is on disk."""

    name = "redis-always"
    _durability = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")


class ElasticMQ(System):
    """In memory, as it comes; or with its storage for messages, H2, the only durable setting that it has. As it comes
    H2 writes what is committed half a second later, so that kill -9 loses what was acknowledged; without that delay it
    writes at each commit, which is still a weaker promise than an fdatasync."""

    def __init__(self, work_dir: Path, name: str, *, stores_messages: bool) -> None:
        self.name = name
        super().__init__(work_dir)
        need_java()
        self._stores_messages = stores_messages
        self._libs = jars("elasticmq", "ElasticMQ")

    def version(self) -> str:
        found = list(self._libs.glob("elasticmq-server_*.jar"))
        return found[0].stem.rpartition("-")[2] if found else ""

    def _launch(self) -> Process:
        self.http_port = self.port
        conf = self.dir / "elasticmq.conf"
        storage = (
            f"""messages-storage {{ enabled = true, uri = "jdbc:h2:{self.dir / "messages"};WRITE_DELAY=0" }}
            queues-storage {{ enabled = true, path = "{self.dir / "queues.conf"}" }}"""
            if self._stores_messages
            else ""
        )
        conf.write_text(
            f"""include classpath("application.conf")
            node-address {{ host = "127.0.0.1", port = {self.port} }}
            rest-sqs {{ bind-port = {self.port}, bind-hostname = "127.0.0.1" }}
            rest-stats {{ enabled = false }}
            {storage}
            """
        )
        java = ["java", "-Xmx1G", "-Xms1G", "-server", f"-Dconfig.file={conf}"]
        return Process([*java, "-cp", f"{self._libs}/*", "org.elasticmq.server.Main"], self.log, cwd=self.dir)

    def _is_ready(self) -> bool:
        request = b"GET /?Action=ListQueues HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        return answers(self.port, request, expect=lambda data: data.startswith(b"HTTP/1.1 200"))


class RabbitMQ(System):
    """A stream queue (RabbitMQ's log), spoken to over AMQP 0-9-1 with publisher confirms."""

    name = "rabbitmq"
    ready_timeout_s = 120.0
    _script = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

    def __init__(self, work_dir: Path) -> None:
        super().__init__(work_dir)
        if not self._script.exists():
            raise Unavailable("rabbitmq-server is not installed (Debian: rabbitmq-server)")
        self._epmd_binary = apt_binary("epmd", "erlang-base")
        _need_client("pika", "pika")
        self._epmd: Process | None = None

    def version(self) -> str:
        folders = Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")
        return next((folder.name.rpartition("-")[2] for folder in folders), "")

    def _launch(self) -> Process:
        # Erlang's port mapper would otherwise be left behind as a daemon on all interfaces.
        epmd_port = free_port()
        self._epmd = Process([self._epmd_binary, "-port", str(epmd_port), "-address", "127.0.0.1"], self.log)
        dist_port = str(free_port())
        env = {
            "HOME": str(self.dir),
            "ERL_EPMD_PORT": str(epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{os.getpid()}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": dist_port,
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": str(self.dir / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.dir / "log"),
            "RABBITMQ_PID_FILE": str(self.dir / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.dir / "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.dir / "rabbitmq"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.dir / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(self.dir / "rabbitmq-env.conf"),
        }
        return Process([str(self._script)], self.log, env=env)

    def _is_ready(self) -> bool:
        return answers(self.port, b"AMQP\x00\x00\x09\x01")

    def stop(self) -> float:
        took = super().stop()
        if self._epmd is not None:
            self._epmd.stop()
            self._epmd = None
        return took
