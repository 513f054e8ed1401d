"""The work of `headrace demo`: a broker of its own, orders, a pipeline over them, and a check of the answer."""

import json
import random
import re
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headrace.cli.errors import CommandFailed
from headrace.cli.output import count, table
from headrace.cli.progress import Progress
from headrace.pipelines.letters import by_reason, read_letters
from headrace.pipelines.session import check_ready
from headrace.wire import Cluster

_READY = re.compile(r"ready on (\S+:\d+)")
_READY_S = 60.0
_STOP_S = 30.0
_USERS = ("ada", "bob", "cem", "dee", "eve")
_EVERY_BAD = 100
"""One order in so many is broken."""

_PIPELINE = """\
[source]
topic = "orders"
schema = "order_id STRING, user STRING, amount DECIMAL(10, 2), at TIMESTAMP"

[transform]
sql = "SELECT user, count(*) AS orders, sum(amount) AS revenue FROM source GROUP BY user"

[sink]
topic = "revenue"
key = "user"
delivery = "exactly-once"

[errors]
on_error = "dead-letter"       # a record that does not fit goes to orders.dlq, and the rest goes on
"""


def tour(orders: int, keep: Path | None) -> None:
    check_ready()
    started = time.monotonic()
    with _folder(keep) as folder, _broker(folder / "data") as bootstrap:
        _step(1, f"A queue is running on {bootstrap}: `headrace serve` is all it takes.")
        wanted, bad = _publish(bootstrap, orders)
        _step(2, f"{count(orders, 'order')} were published to the topic orders, {bad:,} of them broken on purpose.")
        file = folder / "revenue.toml"
        file.write_text(_PIPELINE)
        _step(3, f"This file is a pipeline, and `headrace pipeline run {file.name}` runs it on Spark:")
        print("\n" + "\n".join(f"    {line}" for line in _PIPELINE.splitlines()) + "\n", flush=True)
        _run(file, bootstrap, folder / "state")
        with Cluster(bootstrap) as cluster:
            found = _revenue(cluster)
            letters = list(read_letters(cluster, "orders.dlq"))
        _step(4, "What came out, in the topic revenue:")
        table(None, [("USER", "left"), ("ORDERS", "right"), ("REVENUE", "right")], _rows(found))
        _step(5, f"And what did not fit, in the topic orders.dlq: {count(len(letters), 'dead letter')}.")
        reasons = [(f"{each.count:,}", each.reason) for each in by_reason(letters, {})]
        table(None, [("LETTERS", "right"), ("REASON", "left")], reasons)
        if found != wanted or len(letters) != bad:
            raise CommandFailed("the result is not what was published: please report this as a defect of Headrace")
        print(f"\nEvery order was counted once. The tour took {time.monotonic() - started:.0f} seconds.")
    print(
        "Go on with: headrace serve · headrace pipeline init revenue.toml · headrace --help"
        + (f"\nThe data and the pipeline are in {keep}." if keep else "")
    )


def _step(number: int, text: str) -> None:
    print(f"{number}. {text}", flush=True)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="headrace-demo-", ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    if keep.exists() and any(keep.iterdir()):
        raise CommandFailed(f"{keep} is not empty: name a folder that is new")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.absolute()


@contextmanager
def _broker(data: Path) -> Iterator[str]:
    """A `headrace serve` on a free port, and its address. It is stopped at the end, whatever happens."""
    command = [sys.executable, "-m", "headrace", "serve", "--data-dir", str(data), "--kafka-listen", "127.0.0.1:0"]
    data.parent.mkdir(parents=True, exist_ok=True)
    with (data.parent / "broker.log").open("w+") as log:
        process = subprocess.Popen(
            command, cwd=data.parent, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
        try:
            assert process.stdout is not None
            heard, _, _ = select.select([process.stdout], [], [], _READY_S)
            ready = _READY.search(process.stdout.readline()) if heard else None
            if ready is None:
                log.seek(0)
                raise CommandFailed(f"the broker did not start: {log.read().strip() or 'it gave no reason'}")
            yield ready[1]
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _publish(bootstrap: str, orders: int) -> tuple[dict[str, tuple[int, int]], int]:
    """Publish; how many good orders and how many cents each user has, and how many orders are broken."""
    from headrace.client import Client

    dice = random.Random(7)
    noon = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    numbers, cents, bad = Counter[str](), Counter[str](), 0
    with Client(bootstrap) as client, Progress("published", total=orders) as progress:
        size = 0
        for number in range(orders):
            user, amount = dice.choice(_USERS), dice.randrange(100, 50_000)
            at = (noon + timedelta(milliseconds=3_600_000 * number // orders)).isoformat()
            order: dict[str, Any] = {"order_id": f"o{number}", "user": user, "amount": amount / 100, "at": at}
            if number % _EVERY_BAD == 17:
                bad += 1
                order["amount"] = "a lot"
            else:
                numbers[user] += 1
                cents[user] += amount
            payload = json.dumps(order)
            size += len(payload)
            client.publish_soon("orders", payload, key=user)
            if number % 1000 == 0:
                progress.update(number, size)
        client.flush()
    return {user: (numbers[user], cents[user]) for user in numbers}, bad


def _run(file: Path, bootstrap: str, state: Path) -> None:
    """Run the pipeline as a user would, in a process of its own. What it leaves is left in the tour's folder."""
    command = [sys.executable, "-m", "headrace", "pipeline", "run", str(file), "--once"]
    command += ["--bootstrap", bootstrap, "--state-dir", str(state)]
    done = subprocess.run(command, cwd=file.parent, check=False)
    if done.returncode != 0:
        raise CommandFailed("the pipeline failed; what it says is above")


def _revenue(cluster: Cluster) -> dict[str, tuple[int, int]]:
    """The newest row of each user: orders and cents."""
    found = {}
    for message in read_letters(cluster, "revenue"):
        row = json.loads(message.payload or b"{}")
        found[row["user"]] = (row["orders"], round(row["revenue"] * 100))
    return found


def _rows(found: dict[str, tuple[int, int]]) -> list[tuple[str, str, str]]:
    return [(user, f"{orders:,}", f"{cents / 100:,.2f}") for user, (orders, cents) in sorted(found.items())]
