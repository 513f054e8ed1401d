"""What metering costs on the event loop's thread, in one process: nothing but the path of a request is measured.

    quota_path.py [--turns 2000] [--only single …]

One broker in this process gets its requests without a network (`metrics.DirectConnection`). Turns are compared one by
one, in changing order: `none` is a broker without quotas, against a copy of `kafka/connection.py` without the code
that looks at quotas; `bytes` and `time` are quotas that are never reached, against the same connection with metering
switched off. `again` repeats the second side: it shows what can be told apart. CPU time, the median of all turns but
the first fifth.
"""

import argparse
import asyncio
import inspect
import statistics
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import metrics
from headrace.app.broker import BrokerApp
from headrace.config.broker import broker_settings
from headrace.kafka import connection as production
from headrace.kafka.server import KafkaServer
from headrace.model.quotas import QuotaKind

_UNLIMITED = 2**31 - 1
_BYTES = {QuotaKind.PRODUCE: 1e12, QuotaKind.FETCH: 1e12}
_QUOTAS = {"bytes": _BYTES, "time": {**_BYTES, QuotaKind.REQUEST: 1e6}}
_KINDS = ("alone", "single", "fetch")
_HOOK = "        if quotas.is_active:\n"
_AFTER_HOOK = "        self._mark.request = context ="
_REMOVED = (
    """\
            is_timing = bool(queue) and self._host.quotas.is_timing
            if is_timing and self._peer is not None and (meter := self._peer.meter) is not None:
                meter.mark_ms = self._host.now_ms() if timer is None else timer.begun_ms
""",
    """\
                if is_timing and self._peer is not None and (meter := self._peer.meter) is not None:
                    meter.end_turn(ended_ms)
""",
    " and (metered is None or not metered.throttle_ms)",
)

Side = tuple[metrics.DirectConnection, Callable[[], None]]
"""A connection, and what to do before a turn of it."""


def without_quotas(source: str) -> str:
    """The module of connections without the code that looks at quotas."""
    begin, end = source.index(_HOOK), source.index(_AFTER_HOOK)
    source = source[:begin] + source[end:]
    source = source.replace("metered, quotas = None, self._host.quotas\n", "metered = None\n")
    source = source.replace(
        "            if metered is None and quotas.is_timing:\n"
        "                context = timed_later(context)\n"
        "                metered = context.metered\n",
        "",
    )
    for text in _REMOVED:
        if source.count(text) != 1:
            raise SystemExit(f"kafka/connection.py has changed, adapt this bench: {text!r}")
        source = source.replace(text, "")
    return source


def connection_on(server: KafkaServer, source: str) -> metrics.DirectConnection:
    """A connection of a module of its own, so that copies share no caches of the interpreter."""
    module = ModuleType("connection")
    exec(compile(source, str(production.__file__), "exec"), module.__dict__)
    metrics.Connection = module.Connection  # type: ignore[misc]
    return metrics.DirectConnection(server, is_counted=True)


async def compared(block: bytes, count: int, sides: Mapping[str, Side], turns: int) -> str:
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(turns):
        for name in (list(sides), list(reversed(sides)))[number % 2]:
            connection, prepare = sides[name]
            prepare()
            found[name].append(await connection.turn(block) / count)
    medians = {name: statistics.median(times[turns // 5 :]) for name, times in found.items()}
    without = medians["without"]
    return " | ".join(f"{each:.2f} ({each / without:.3f})" for each in medians.values())


async def measure(server: KafkaServer, source: str, options: argparse.Namespace) -> None:
    quotas = server.quotas
    texts = {"without": without_quotas(source), "with": source, "again": source}
    copies = {name: connection_on(server, text) for name, text in texts.items()}

    def switch(*, active: bool, timing: bool) -> None:
        quotas.is_active, quotas.is_timing = active, timing

    print("| µs of CPU per request | without | with | again |\n|---|---|---|---|", flush=True)
    for kind, (block, count) in metrics.request_blocks().items():
        if kind not in (options.only or _KINDS):
            continue
        quotas.update({}, _UNLIMITED, {}, int(server.now_ms()))
        unset: dict[str, Side] = {name: (each, lambda: None) for name, each in copies.items()}
        print(f"| {kind}, none | {await compared(block, count, unset, options.turns)} |", flush=True)
        for name, limits in _QUOTAS.items():
            quotas.update({(("user", None),): limits}, _UNLIMITED, {}, int(server.now_ms()))
            is_timing, one = quotas.is_timing, copies["with"]

            def off() -> None:
                switch(active=False, timing=False)

            def on(is_timing: bool = is_timing) -> None:
                switch(active=True, timing=is_timing)

            sides: dict[str, Side] = {"without": (one, off), "with": (one, on), "again": (one, on)}
            print(f"| {kind}, {name} | {await compared(block, count, sides, options.turns)} |", flush=True)
    for each in copies.values():
        each.close()


async def run(options: argparse.Namespace, folder: Path) -> None:
    settings = {"data.dir": str(folder / "data"), "kafka.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0"}
    app = BrokerApp(broker_settings(settings))
    await app.start()
    try:
        server = app._metrics.kafka_server
        assert server is not None
        await asyncio.to_thread(metrics.create_topic, str(app.kafka_endpoint))
        await asyncio.sleep(2)
        await measure(server, inspect.getsource(production), options)
    finally:
        await app.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2000)
    parser.add_argument("--only", nargs="*", choices=_KINDS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        asyncio.run(run(options, Path(folder)))


if __name__ == "__main__":
    main()
