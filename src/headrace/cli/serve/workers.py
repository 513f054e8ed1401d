"""The work of `headrace serve --workers N`: N brokers on one machine, each a process with a core to itself.

Worker k has the broker id base + k, the ports base + k (for Kafka clients and for HTTP) and the data directory
`worker-k` under the one that was given. All of them are in one rack, so that the replicas of a partition do not share
the machine. A worker that dies is started again; one that cannot start at all ends the whole, with its reason.
"""

import asyncio
import logging
import re
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from headrace.cli.children import Child, how_it_ended, keep_running
from headrace.cli.errors import BadArgument
from headrace.config.address import parse_address
from headrace.config.broker import BrokerSettings
from headrace.model.image import Endpoint
from headrace.observe.logs import JSON, configure

log = logging.getLogger(__name__)

_READY = re.compile(r"ready on (\S+:\d+)")
_CANNOT_START = 2
_EXTRA_STOP_S = 15.0
"""Beyond the time that a broker gives itself to stop."""


def run_workers(workers: int, settings: BrokerSettings, flags: Mapping[str, str], config: Path | None) -> int:
    """Run until SIGTERM or Ctrl-C; the exit code."""
    if not settings.etcd_endpoints:
        raise BadArgument("--workers needs --etcd HOST:PORT: several brokers are a cluster, and that needs an etcd")
    configure(settings.log_level, log_format=settings.log_format)
    return asyncio.run(_Workers(workers, settings, flags, config).run())


def worker_flags(number: int, settings: BrokerSettings, flags: Mapping[str, str]) -> dict[str, str]:
    """The settings of worker `number` that are given by flags: those of all, and what makes it itself."""
    its = {
        **flags,
        "broker.id": str(settings.broker_id + number),
        "broker.rack": settings.broker_rack or socket.gethostname(),
        "data.dir": str(Path(settings.data_dir) / f"worker-{number}"),
        "kafka.listen": _shifted(settings.listen, number),
    }
    if settings.http_listen and settings.http_address is not None:
        its["http.listen"] = _shifted(settings.http_address, number)
    if settings.advertise:
        # Without a port of its own, the one that a worker listens on is advertised.
        advertised = parse_address(settings.advertise, default_port=0)
        its["advertise"] = _shifted(advertised, number) if advertised.port else settings.advertise
    return its


def _shifted(endpoint: Endpoint, number: int) -> str:
    if not endpoint.port:
        return str(endpoint)
    if endpoint.port + number > 65_535:
        raise BadArgument(f"{endpoint} leaves no room for the ports of all workers: choose a lower one")
    return str(Endpoint(endpoint.host, endpoint.port + number))


class _Workers:
    def __init__(self, workers: int, settings: BrokerSettings, flags: Mapping[str, str], config: Path | None) -> None:
        self._settings = settings
        self._ready: dict[str, str] = {}
        self._is_announced = False
        self._children = [
            Child(
                f"worker-{number}",
                self._command(worker_flags(number, settings, flags), config),
                on_line=self._on_line,
                became_ready=self._became_ready,
            )
            for number in range(workers)
        ]

    @staticmethod
    def _command(flags: Mapping[str, str], config: Path | None) -> list[str]:
        command = [sys.executable, "-m", "headrace", "serve"]
        if config is not None:
            command += ["--config", str(config)]
        for name, value in flags.items():
            command += ["--set", f"{name}={value}"]
        return command

    async def run(self) -> int:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        watching: list[asyncio.Task[int]] = []
        code = 0
        try:
            for child in self._children:
                await child.start()
                task = loop.create_task(keep_running(child, self._died, may_restart=self._may_restart))
                watching.append(task)
            stop = loop.create_task(stopping.wait())
            try:
                await asyncio.wait((*watching, stop), return_when=asyncio.FIRST_COMPLETED)
            finally:
                stop.cancel()
            if not stopping.is_set():
                code = next(task.result() for task in watching if task.done())
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            await self._stop()
        return code

    async def _stop(self) -> None:
        """One after the other: each hands what it leads to brokers that stay, the other machines' and those left."""
        limit_s = (self._settings.controlled_shutdown_timeout_ms + self._settings.shutdown_timeout_ms) / 1000
        for child in reversed(self._children):
            if not await child.stop(limit_s + _EXTRA_STOP_S):
                self._say(child, f"did not stop in {limit_s + _EXTRA_STOP_S:.0f} s and was killed")

    def _became_ready(self, child: Child, line: str) -> None:
        match = _READY.search(line)
        if match is None:
            return
        self._ready[child.name] = match[1]
        if not self._is_announced and len(self._ready) == len(self._children):
            self._is_announced = True
            ids = f"{self._settings.broker_id} to {self._settings.broker_id + len(self._children) - 1}"
            where = Path(self._settings.data_dir).resolve()
            addresses = ",".join(self._ready[each.name] for each in self._children)
            print(f"Headrace is ready on {addresses} (brokers {ids}, data in {where})", flush=True)

    def _may_restart(self, child: Child, code: int) -> bool:
        return child.has_been_ready

    def _died(self, child: Child, code: int, again_in_s: float) -> None:
        again = f"it is started again in {again_in_s:.0f} s" if again_in_s >= 0 else "all workers are stopped"
        if again_in_s < 0 and code == _CANNOT_START:
            print(f"headrace: {child.last_line.removeprefix('headrace: ')}", file=sys.stderr, flush=True)
            return
        self._say(child, f"{how_it_ended(code)} (process {child.pid}); {again}")

    def _on_line(self, child: Child, line: str) -> None:
        if line.startswith("{") and self._settings.log_format == JSON:
            # It has the broker's id already.
            print(line, file=sys.stderr, flush=True)
        elif not line.startswith("headrace: "):
            self._say(child, line)

    def _say(self, child: Child, text: str) -> None:
        if self._settings.log_format == JSON:
            log.info("%s", text, extra={"fields": {"worker": child.name}})
        else:
            print(f"{child.name}: {text}", file=sys.stderr, flush=True)
