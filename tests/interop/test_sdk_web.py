"""Handlers inside a web server: uvicorn stays in charge of signals, the client finishes what is in hand."""

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace import Client
from headrace.testing.etcd import free_port
from tests.waiting import until

from .quick import broker  # noqa: F401
from .subject import Subject

ROOT = Path(__file__).parents[2]

APP = """
import asyncio, sys
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from headrace import Backoff
from headrace.aio import Client

bootstrap, port, topic, how, marks, loop = sys.argv[1:]
client = Client(bootstrap)


@client.handler(topic, group="web", retry=Backoff(attempts=1))
async def work(message):
    if message.text == "bad":
        raise ValueError("a bad order")
    Path(marks, f"{message.text}.began").touch()
    while not Path(marks, "go").exists():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    Path(marks, f"{message.text}.ended").touch()


async def answer(request):
    found = client.health()
    return JSONResponse(found.as_dict(), 200 if found.is_running else 503)


@asynccontextmanager
async def with_running(app):
    async with client, client.running():
        yield


@asynccontextmanager
async def with_task(app):
    async with client:
        task = asyncio.create_task(client.run())
        yield
        client.stop()
        await task


app = Starlette(routes=[Route("/health", answer)], lifespan=with_running if how == "running" else with_task)
uvicorn.run(app, port=int(port), log_level="info", loop=loop)
"""


class Server:
    def __init__(self, process: subprocess.Popen[str], port: int, log: Path) -> None:
        self.process = process
        self._port = port
        self._log = log

    def health(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/health", timeout=60) as answer:
                return {"status": 200, **json.load(answer)}
        except urllib.error.HTTPError as error:
            with error:
                return {"status": error.code, **json.load(error)}
        except OSError:
            return {}

    @property
    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture
def serve(broker: Subject, topic: str, tmp_path: Path) -> Callable[..., Any]:
    @contextmanager
    def start(how: str, loop: str = "asyncio") -> Iterator[Server]:
        script, port, log = tmp_path / "app.py", free_port(), tmp_path / "server.log"
        script.write_text(APP)
        command = [sys.executable, str(script), broker.bootstrap, str(port), topic, how, str(tmp_path), loop]
        with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output, text=True) as process:
            try:
                server = Server(process, port, log)
                until(lambda: server.health() or process.poll() is not None, lambda: server.log)
                yield server
            finally:
                process.kill()

    return start


@pytest.mark.parametrize(("how", "loop"), [("running", "asyncio"), ("task", "asyncio"), ("running", "uvloop")])
def test_sigterm_ends_the_server_and_finishes_the_message_in_hand(
    broker: Subject, topic: str, serve: Callable[..., Any], tmp_path: Path, how: str, loop: str
) -> None:
    with serve(how, loop) as server, Client(broker.bootstrap) as client:
        client.publish(topic, "first")
        until((tmp_path / "first.began").exists, lambda: server.log)
        until(lambda: server.health().get("status") == 200)
        server.process.send_signal(signal.SIGTERM)
        # The server itself has heard it; only then is the handler allowed to go on.
        until(lambda: "Shutting down" in server.log, lambda: server.log)
        (tmp_path / "go").touch()
        server.process.wait(60)
        assert server.process.returncode in (0, -signal.SIGTERM), server.log
        assert (tmp_path / "first.ended").exists()
        assert "Application shutdown complete" in server.log
        client.publish(topic, "second")
        # What was in hand is committed: the group goes on behind it.
        with client.consume(topic, "web") as left:
            assert next(left).text == "second"


def test_the_health_of_a_handler_that_stopped_is_a_503(broker: Subject, topic: str, serve: Callable[..., Any]) -> None:
    with serve("running") as server, Client(broker.bootstrap) as client:
        until(lambda: server.health().get("status") == 200)
        client.publish(topic, "bad")
        found = until(lambda: (health := server.health()).get("status") == 503 and health, lambda: server.log)
        (worker,) = found["workers"]
        assert worker["name"] == "work"
        assert worker["source"] == f"{topic} (group web)"
        assert (worker["is_running"], worker["handled"], worker["failed"]) == (False, 0, 1)
        assert re.search(r"ValueError: a bad order \(.*app\.py:\d+\)", server.log)
        assert "Traceback" in server.log
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(60)


def test_the_example_serves_orders(broker: Subject) -> None:
    port = free_port()
    command = [sys.executable, str(ROOT / "examples" / "web_app.py"), broker.bootstrap, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            url = f"http://127.0.0.1:{port}/orders"

            def post() -> object:
                try:
                    request = urllib.request.Request(url, data=b'{"item": "tea"}', method="POST")
                    with urllib.request.urlopen(request, timeout=60) as answer:
                        return json.load(answer)
                except (ConnectionError, urllib.error.URLError):
                    return process.poll() is not None

            assert until(post) == {"offset": 0}
            assert process.stdout is not None
            assert "billed tea\n" in process.stdout
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) in (0, -signal.SIGTERM)
        finally:
            process.kill()
