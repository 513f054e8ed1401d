"""A real broker inside the test process: the code of `headrace serve`, on a thread with its own event loop."""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import uvloop

from headrace.config.load import load_settings
from headrace.security.tls.dev_certificates import make_dev_certificates

if TYPE_CHECKING:
    from headrace.app.broker import BrokerApp

_HOST = "127.0.0.1"
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 60.0
_KAFKA_NAMES = {"plain": "PLAINTEXT", "tls": "SSL", "sasl_plain": "SASL_PLAINTEXT", "sasl_tls": "SASL_SSL"}


class Broker:
    """A broker on free ports of 127.0.0.1, for as long as the `with` block lasts.

    ```python
    from headrace import Client
    from headrace.testing import Broker

    with Broker(settings={"num.partitions": 1}) as broker, Client(broker.bootstrap) as client:
        client.publish("orders", "tea")
        broker.restart()
        assert [each.text for each in client.replay("orders")] == ["tea"]
    ```

    `bootstrap` is for Kafka clients, `http_url` the endpoint of the SQS API. The first member of a group does not wait
    for others (`group.initial.rebalance.delay.ms` is 0). Without `data_dir` the data is in a temporary directory that
    is removed at the end. `stop` and `start` keep ports and data. Any number of brokers may run side by side. Settings
    come from `settings` alone, never from the environment.

    With `tls` clients connect over TLS, also to the SQS API: `ca_file` has the CA that they must trust. With `users`,
    names with passwords, they log in by SASL; `settings={"authorization.enable": True}` makes ACLs decide as well, and
    `super.users` names those who may do everything. `kafka_settings("alice")` are the settings of a Kafka client.
    `set_password` and `delete_user` change the users of a running broker.
    """

    def __init__(
        self,
        data_dir: Path | str | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self._temporary = None if data_dir is not None else Path(tempfile.mkdtemp(prefix="headrace-test-"))
        self.data_dir = self._temporary or Path(data_dir or "")
        self._flags = {name: _text(value) for name, value in (settings or {}).items()}
        self._flags["data.dir"] = str(self.data_dir)
        # The delay saves the first members of a large group further rebalances; a test would only wait 3 s.
        self._flags.setdefault("group.initial.rebalance.delay.ms", "0")
        self._flags.setdefault("group.streams.initial.rebalance.delay.ms", "0")
        self._users = dict(users or {})
        self._certificates = Path(tempfile.mkdtemp(prefix="headrace-certs-")) if tls else None
        if tls or users:
            self._flags.setdefault("listeners", f"{_protocol(tls=tls, sasl=bool(users))}://{_HOST}:0")
            self._flags.setdefault("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512")
        self._flags.setdefault("kafka.listen", f"{_HOST}:0")
        self._flags.setdefault("http.listen", f"{'https://' if tls else ''}{_HOST}:0")
        if self._certificates is not None:
            made = make_dev_certificates(self._certificates)
            self._flags |= {
                "tls.cert.file": str(made.broker.cert_file),
                "tls.key.file": str(made.broker.key_file),
                "tls.ca.file": str(made.ca.cert_file),
            }
        self._port = 0
        self._http_url = ""
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._app: BrokerApp | None = None
        self._ended: Future[None] = Future()

    @property
    def host(self) -> str:
        return _HOST

    @property
    def port(self) -> int:
        if not self._port:
            raise RuntimeError("the broker has not been started yet")
        return self._port

    @property
    def bootstrap(self) -> str:
        """The address for `bootstrap.servers` of Kafka clients."""
        return f"{self.host}:{self.port}"

    @property
    def http_url(self) -> str:
        """The endpoint for SQS clients: `boto3.client("sqs", endpoint_url=broker.http_url, …)`."""
        if not self._http_url:
            raise RuntimeError("the broker has not been started yet, or with http.listen=off")
        return self._http_url

    @property
    def ca_file(self) -> Path:
        """The CA of the broker's certificate, as PEM, if it was made with `tls`."""
        if self._certificates is None:
            raise RuntimeError("the broker was made without tls=True")
        return self._certificates / "ca.pem"

    def kafka_settings(self, user: str = "", *, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """The settings of librdkafka for a user, or for anyone on a broker without users."""
        protocol = _protocol(tls=self._certificates is not None, sasl=bool(self._users))
        settings = {"bootstrap.servers": self.bootstrap, "security.protocol": _KAFKA_NAMES[protocol]}
        if self._certificates is not None:
            settings["ssl.ca.location"] = str(self.ca_file)
        if self._users:
            settings |= {
                "sasl.mechanism": mechanism,
                "sasl.username": user,
                "sasl.password": self._users[user],
            }
        return settings

    def set_password(self, user: str, password: str) -> None:
        """Create a user, or give one another password, which closes its connections."""
        self._users[user] = password
        self._run_in_broker(self._running_app().put_password(user, password))

    def delete_user(self, user: str) -> None:
        """Delete a user, which closes its connections."""
        self._users.pop(user, None)
        self._run_in_broker(self._running_app().delete_user(user))

    def _running_app(self) -> "BrokerApp":
        if self._app is None or not self.is_running:
            raise RuntimeError("the broker is not running")
        return self._app

    def _run_in_broker(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_TIMEOUT_S)

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> "Broker":
        """Start and wait until clients can connect; raises the broker's startup error."""
        if self.is_running:
            raise RuntimeError("the broker is already running")
        import headrace.protocol  # noqa: F401  Before anything else imports kio.

        ready: Future[tuple[int, str]] = Future()
        self._ended = Future()
        self._thread = threading.Thread(target=self._run, args=(ready, self._ended), name="headrace", daemon=True)
        self._thread.start()
        self._port, self._http_url = ready.result(_START_TIMEOUT_S)
        self._flags["kafka.listen"] = f"{self._flags['kafka.listen'].rpartition(':')[0]}:{self._port}"
        if self._users or self._certificates is not None:
            first, comma, others = self._flags["listeners"].partition(",")
            self._flags["listeners"] = first.replace(f"{_HOST}:0", f"{_HOST}:{self._port}", 1) + comma + others
        if self._http_url:
            http_port = self._http_url.rpartition(":")[2]
            self._flags["http.listen"] = f"{self._flags['http.listen'].rpartition(':')[0]}:{http_port}"
        return self

    def stop(self) -> None:
        """Stop as on SIGTERM: drain, flush, mark the shutdown as clean. A no-op if it is stopped."""
        if self._thread is None:
            return
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise RuntimeError(f"the broker did not stop within {_STOP_TIMEOUT_S:.0f} seconds")
        self._thread = None
        self._ended.result(0)

    def restart(self) -> "Broker":
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop, and remove the data directory unless the caller gave it."""
        try:
            self.stop()
        finally:
            for folder in (self._temporary, self._certificates):
                if folder is not None:
                    shutil.rmtree(folder, ignore_errors=True)

    def _run(self, ready: "Future[tuple[int, str]]", ended: "Future[None]") -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(ready))
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
                ended.set_result(None)
            else:
                ended.set_exception(error)
        else:
            ended.set_result(None)

    async def _serve(self, ready: "Future[tuple[int, str]]") -> None:
        from headrace.app.broker import BrokerApp

        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        app = self._app = BrokerApp(load_settings(flags=self._flags))
        await app.start()
        try:
            for name, password in self._users.items():
                await app.put_password(name, password)
            ready.set_result((app.kafka_endpoint.port, app.http_url))
            await self._stopping.wait()
        finally:
            await app.stop()

    def __enter__(self) -> "Broker":
        return self if self.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> "Broker":
        return self if self.is_running else await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)


def _protocol(*, tls: bool, sasl: bool) -> str:
    return f"{'sasl_' if sasl else ''}{'tls' if tls else 'plain'}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
