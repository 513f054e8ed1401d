"""What client quotas cost: CPU time of the event loop's thread per request, with and without quotas.

    quotas.py [--turns 3000]

One broker in this process, and one connection; what it is limited by changes after some turns: no quotas, quotas of
others, and quotas of its own for bytes and for request time that it does not reach. `none again` is `none` a second
time, which shows the noise. `alone` is one Produce of 100 B, `single` 32 of them in flight. The CPU time is from the
received bytes to the sent answer, without the network; a busy machine changes little in the ratios.
"""

import argparse
import asyncio
import statistics
import tempfile
from pathlib import Path

from headrace.app.broker import BrokerApp
from headrace.config.broker import broker_settings
from headrace.model.quotas import ClusterQuotas, QuotaKind
from headrace.quotas.broker_quotas import UNLIMITED_CONNECTIONS, BrokerQuotas
from metrics import DirectConnection, create_topic, request_blocks

_IN_A_ROW = 40
_HIGH = {QuotaKind.PRODUCE: 1e12, QuotaKind.FETCH: 1e12}
VARIANTS: dict[str, ClusterQuotas] = {
    "none": {},
    "of others": {(("user", "bob"),): _HIGH},
    "bytes": {(("user", None),): _HIGH},
    "bytes and time": {(("user", None),): {**_HIGH, QuotaKind.REQUEST: 1e6}},
    "none again": {},
}


def limited_by(quotas: ClusterQuotas) -> BrokerQuotas:
    found = BrokerQuotas()
    found.update(quotas, UNLIMITED_CONNECTIONS, {}, 0)
    return found


async def measure(turns: int, folder: Path) -> None:
    settings = {"data.dir": str(folder), "kafka.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0"}
    app = BrokerApp(broker_settings(settings))
    await app.start()
    try:
        server = app._metrics.kafka_server
        assert server is not None
        await asyncio.to_thread(create_topic, str(app.kafka_endpoint))
        await asyncio.sleep(2)
        connection = DirectConnection(server, is_counted=True)
        variants = {name: limited_by(quotas) for name, quotas in VARIANTS.items()}
        print(f"| µs of CPU per request | {' | '.join(variants)} |\n|---|{'---|' * len(variants)}", flush=True)
        for kind, (block, count) in request_blocks().items():
            if kind not in ("alone", "single"):
                continue  # Larger ones do not fit into one read, or into the socket.
            found: dict[str, list[float]] = {name: [] for name in variants}
            names = list(variants)
            for number in range(turns // _IN_A_ROW):
                shift = number % len(names)
                for name in names[shift:] + names[:shift]:
                    server.quotas = variants[name]
                    times = [await connection.turn(block) / count for _ in range(_IN_A_ROW)]
                    # The first ones find the accounts of the client.
                    found[name] += times[_IN_A_ROW // 4 :]
            medians = {name: statistics.median(times[len(times) // 5 :]) for name, times in found.items()}
            cells = [f"{each:.2f} ({each / medians['none']:.3f})" for each in medians.values()]
            print(f"| {kind} | {' | '.join(cells)} |", flush=True)
        connection.close()
    finally:
        await app.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        asyncio.run(measure(options.turns, Path(folder)))


if __name__ == "__main__":
    main()
