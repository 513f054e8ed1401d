"""A broker whose metrics are switched while it runs, for `live_comparison`: `metrics.enable` is read when it starts.

    python -m harness.switched_broker DATA_DIR

Without a byte on its standard input metrics are on; `0` turns off the times of requests and the traffic of topics for
what is open then, and `1` on again. Each byte is answered with the same on its standard output.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import uvloop

from headrace.app.broker import BrokerApp, serve
from headrace.config.broker import broker_settings
from headrace.kafka.connection import Connection
from headrace.kafka.request_turn import TurnTimer

_OFF, _ON = b"0", b"1"


class SwitchedBroker:
    """The process, as the benchmark has it."""

    def __init__(self, data_dir: Path) -> None:
        command = [sys.executable, "-m", "harness.switched_broker", str(data_dir)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    @property
    def pid(self) -> int:
        return self._process.pid

    def switch(self, on: bool) -> None:
        """Turn metrics on or off; no request may be in flight."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        wanted = _ON if on else _OFF
        self._process.stdin.write(wanted)
        assert self._process.stdout.read(1) == wanted

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)


class MetricsSwitch:
    """Turns metrics off and on, inside of the broker."""

    def __init__(self, app: BrokerApp) -> None:
        server = app._metrics.kafka_server
        assert server is not None
        self._server = server
        self._timers: dict[Connection, TurnTimer | None] = {}

    def answer(self) -> None:
        for wanted in os.read(0, 1):
            self.turn(on=bytes((wanted,)) == _ON)
            os.write(1, bytes((wanted,)))

    def turn(self, *, on: bool) -> None:
        for connection in self._server._connections:
            timer = self._timers.setdefault(connection, connection._timer)
            connection._timer = connection._answers._timer = timer if on else None
        table = self._server.services.partitions
        assert table.traffic is not None
        for partition in table.all():
            partition.traffic = table.traffic.of(partition.topic) if on else None


def main() -> None:
    settings = {"data.dir": sys.argv[1], "kafka.listen": "127.0.0.1:0", "http.listen": "off", "preload.enable": "false"}

    def ready(app: BrokerApp) -> None:
        asyncio.get_running_loop().add_reader(0, MetricsSwitch(app).answer)
        os.write(1, f"{app.kafka_endpoint.port}\n".encode())

    uvloop.run(serve(broker_settings(settings), ready))


if __name__ == "__main__":
    main()
