"""The part of the tour on Spark: orders, a pipeline over them, and a check of the answer."""

import json
import os
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headrace.cli.demo.output import DemoOutput
from headrace.cli.demo.processes import lines_of
from headrace.cli.errors import CommandFailed
from headrace.cli.output import count, table
from headrace.client.public import Client
from headrace.pipelines.dead_letters.replay import by_reason, read_letters
from headrace.wire import Cluster

_USERS = ("ada", "bob", "cem", "dee", "eve")
_BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that runs for half a minute is quicker without its second compiler."""
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

Totals = dict[str, tuple[int, int]]
"""Orders and cents of each user."""


def show_pipeline(voice: DemoOutput, bootstrap: str, orders: int, folder: Path) -> None:
    with voice.waiting_for("orders being published"):
        expected, bad = _publish(bootstrap, orders)
    voice.say(f"   {count(orders, 'order')} were published to the topic orders, {bad:,} of them broken on purpose.")
    file = folder / "revenue.toml"
    file.write_text(_PIPELINE)
    voice.say(f"   This file is a pipeline, and `headrace pipeline run {file.name}` runs it on Spark:")
    voice.say("\n" + "\n".join(f"       {line}".rstrip() for line in _PIPELINE.splitlines()) + "\n")
    _run(voice, file, bootstrap, folder / "state")
    with Cluster(bootstrap) as cluster:
        found = _revenue(cluster)
        letters = list(read_letters(cluster, "orders.dlq"))
    voice.say("   What came out, in the topic revenue:")
    table(None, [("   USER", "left"), ("ORDERS", "right"), ("REVENUE", "right")], _rows(found))
    voice.say(f"   And what did not fit, in the topic orders.dlq: {count(len(letters), 'dead letter')}.")
    reasons = [(f"   {each.count:,}", each.reason) for each in by_reason(letters, {})]
    table(None, [("   LETTERS", "right"), ("REASON", "left")], reasons)
    if found != expected or len(letters) != bad:
        raise CommandFailed("the result is not what was published: please report this as a defect of Headrace")
    voice.say("   Every order was counted once.")


def _publish(bootstrap: str, orders: int) -> tuple[Totals, int]:
    """Publish; how many good orders and how many cents each user has, and how many orders are broken."""
    dice = random.Random(7)
    noon = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    numbers, cents, bad = Counter[str](), Counter[str](), 0
    with Client(bootstrap) as client:
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
            client.publish_soon("orders", json.dumps(order), key=user)
        client.flush()
    return {user: (numbers[user], cents[user]) for user in numbers}, bad


def _run(voice: DemoOutput, file: Path, bootstrap: str, state: Path) -> None:
    """Run the pipeline as a user would, in a process of its own. What it leaves is left in the tour's folder."""
    arguments = ["pipeline", "run", str(file), "--once", "--bootstrap", bootstrap, "--state-dir", str(state)]
    environment = {"JAVA_TOOL_OPTIONS": f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {_BRIEF}".strip()}
    with voice.waiting_for("Spark"), lines_of(arguments, file.parent, environment) as (lines, process):
        for line in lines:
            voice.say(f"   {line}")
        code = process.wait()
    if code != 0:
        raise CommandFailed("the pipeline failed; what it says is above")


def _revenue(cluster: Cluster) -> Totals:
    """The newest row of each user."""
    found = {}
    for message in read_letters(cluster, "revenue"):
        row = json.loads(message.payload or b"{}")
        found[row["user"]] = (row["orders"], round(row["revenue"] * 100))
    return found


def _rows(found: Totals) -> list[tuple[str, str, str]]:
    return [(f"   {user}", f"{orders:,}", f"{cents / 100:,.2f}") for user, (orders, cents) in sorted(found.items())]
