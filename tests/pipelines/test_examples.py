"""The example pipelines on their own data. Each answer is computed here again, without Spark."""

import importlib.util
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from tests.waiting import until

from headrace import Client
from headrace.pipelines.dead_letters.replay import read_letters
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.testing import Broker
from headrace.wire import Cluster

from .running import Pipelines

# A run takes seconds, and far longer where many share few cores.
pytestmark = pytest.mark.timeout(600)

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"
_BATCH = 2_000
_TIMES = {"at", "minute", "started", "ended", "ordered", "paid", "hour"}


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"examples_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


data = load(EXAMPLES / "data.py")
NOON_MS = int(data.NOON.timestamp() * 1000)


class Example:
    """One of the examples, in a folder of the test's own, with its data in its topics."""

    def __init__(self, pipelines: Pipelines, cluster: Cluster, name: str) -> None:
        self._pipelines = pipelines
        self._cluster = cluster
        self._name = name
        self.folder = pipelines.folder
        shutil.copytree(EXAMPLES, self.folder, dirs_exist_ok=True)
        self.samples = list(data.GENERATORS[name]())
        for topic in data.TOPICS[name]:
            cluster.create_topic(topic, partitions=1)
        self.add(self.samples)

    def add(self, samples: Iterable[Any]) -> None:
        records = defaultdict(list)
        for each in samples:
            records[each.topic].append(Record(0, NOON_MS, each.key.encode(), each.value, each.headers))
        for topic, found in records.items():
            for start in range(0, len(found), _BATCH):
                self._cluster.produce({(topic, 0): build_batch(found[start : start + _BATCH])})

    def rows(self, topic: str) -> list[dict[str, Any]]:
        """What was written to a topic, with times as times."""
        return [json.loads(each.value, object_hook=_with_times) for each in self.samples if each.topic == topic]

    def run(self) -> Any:
        return self._pipelines.run(self._name, (EXAMPLES / f"{self._name}.toml").read_text())

    def texts(self, topic: str) -> list[str]:
        return [(each.payload or b"").decode() for each in self._pipelines.messages(topic)]

    def found(self, topic: str) -> list[dict[str, Any]]:
        return [json.loads(each, object_hook=_with_times) for each in self.texts(topic)]


def _with_times(columns: dict[str, Any]) -> dict[str, Any]:
    return {key: datetime.fromisoformat(value) if key in _TIMES else value for key, value in columns.items()}


def floor(at: datetime, seconds: int) -> datetime:
    return at - timedelta(seconds=at.timestamp() % seconds)


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    """Equal, in whatever order."""
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


@pytest.fixture
def example(spark, tmp_path, cluster) -> Callable[[str], Example]:
    return lambda name: Example(Pipelines(spark, tmp_path, cluster), cluster, name)


def test_log_lines_are_counted_and_spikes_of_errors_reported(example):
    logs = example("logs")
    logs.run()
    counts: dict[tuple[datetime, str, str], int] = defaultdict(int)
    errors: dict[tuple[datetime, str], list[str]] = defaultdict(list)
    strange = []
    for sample in logs.samples[:-1]:
        line = sample.value.decode()
        if line.startswith(" "):
            strange.append(line)
            continue
        time, level, service, message = line.split(" ", 3)
        minute = floor(datetime.fromisoformat(time), 60)
        counts[minute, service, level] += 1
        if level == "ERROR":
            errors[minute, service].append(message)
    wanted = [{"minute": m, "service": s, "level": v, "lines": n} for (m, s, v), n in counts.items()]
    same(logs.found("logs.counts"), wanted)
    spikes = [
        {"minute": minute, "service": service, "errors": len(messages), "example": min(messages)}
        for (minute, service), messages in errors.items()
        if len(messages) >= 10
    ]
    assert {each["service"] for each in spikes} == {"billing"}
    same(logs.found("logs.spikes"), spikes)
    assert logs.texts("logs.strange") == strange


def test_metrics_are_rolled_up_by_the_minute_and_what_comes_too_late_is_left_out(example):
    metrics = example("metrics")
    metrics.run()
    groups: dict[tuple[datetime, str, str], list[float]] = defaultdict(list)
    for each in metrics.rows("metrics")[:-1]:
        groups[floor(each["at"], 60), each["name"], each["host"]].append(each["value"])
    wanted = [
        {
            "minute": minute,
            "name": name,
            "host": host,
            "samples": len(values),
            "least": min(values),
            "most": max(values),
            "mean": pytest.approx(sum(values) / len(values), abs=0.001),
        }
        for (minute, name, host), values in groups.items()
    ]

    def place(each: dict[str, Any]) -> tuple[object, ...]:
        return each["minute"], each["name"], each["host"]

    assert sorted(metrics.found("metrics.minutes"), key=place) == sorted(wanted, key=place)

    metrics.add([data.row("metrics", "a", name="cpu", host="a", value=1e9, at=data.at(0))])
    assert metrics.run().queries["sink"].late_rows == 1
    assert len(metrics.found("metrics.minutes")) == len(wanted)


def test_clicks_become_sessions(example):
    sessions = example("sessions")
    sessions.run()
    clicks: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in sessions.rows("clicks")[:-1]:
        clicks[each["user"]].append(each)
    wanted = []
    for user, found in clicks.items():
        pauses = [at for at, (a, b) in enumerate(pairwise(found), 1) if b["at"] - a["at"] >= timedelta(minutes=30)]
        for first, last in pairwise([0, *pauses, len(found)]):
            session = found[first:last]
            wanted.append(
                {
                    "user": user,
                    "started": session[0]["at"],
                    "ended": session[-1]["at"],
                    "clicks": len(session),
                    "entered": session[0]["page"],
                    "left": session[-1]["page"],
                }
            )
    assert len(wanted) > len(clicks)
    same(sessions.found("sessions"), wanted)


def test_suspicious_payments_are_found_card_by_card(example):
    fraud = example("fraud")
    fraud.run()
    cards: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for each in fraud.rows("payments"):
        cards[each["card"]][each["id"]] = each
    wanted = []
    for payments in cards.values():
        history = sorted(payments.values(), key=lambda each: each["at"])
        for number, payment in enumerate(history):
            before = history[:number]
            ages = [(payment["at"] - each["at"]).total_seconds() for each in before]
            reasons = []
            if sum(age < 60 for age in ages) >= 3:
                reasons.append("burst")
            if number >= 5 and payment["amount"] > 10 * sum(each["amount"] for each in before) / number:
                reasons.append("amount")
            if ages and ages[-1] < 1800 and before[-1]["country"] != payment["country"]:
                reasons.append("travel")
            wanted += [payment | {"reason": reason} for reason in reasons]
    assert {each["reason"] for each in wanted} == {"burst", "amount", "travel"}
    same(fraud.found("payments.suspicious"), wanted)


def test_changes_become_the_current_state(example):
    customers = example("customers")
    customers.run()
    # The same changes again, in the wrong order: an older change never undoes a newer one.
    half = len(customers.samples) // 2
    customers.add(customers.samples[half:])
    customers.add(customers.samples[:half])
    customers.run()
    state: dict[int, tuple[object, ...]] = {}
    for change in customers.rows("shop.customers"):
        after = change["after"]
        if after is None:
            state.pop(change["before"]["id"], None)
        else:
            state[after["id"]] = (after["id"], after["name"], after["city"])
    with closing(sqlite3.connect(customers.folder / "customers.db")) as database:
        found = database.execute("SELECT id, name, city FROM customers").fetchall()
    assert sorted(found) == sorted(state.values())


def test_orders_are_joined_with_their_payments(example):
    enrichment = example("enrichment")
    enrichment.run()
    lines = (EXAMPLES / "products.csv").read_text().splitlines()[1:]
    products = {product: (title, category) for product, title, category in (line.split(",") for line in lines)}
    orders = {each["id"]: each for each in enrichment.rows("orders")}
    wanted = []
    for paid in enrichment.rows("orders.paid"):
        order = orders[paid["order_id"]]
        if paid["at"] - order["at"] <= timedelta(hours=1):
            title, category = products.get(order["product"], (None, None))
            wanted.append(
                {
                    "id": order["id"],
                    "title": title,
                    "category": category,
                    "quantity": order["quantity"],
                    "amount": paid["amount"],
                    "ordered": order["at"],
                    "paid": paid["at"],
                }
            )
    assert len(wanted) > 200
    same(enrichment.found("orders.complete"), wanted)


def test_features_are_in_files_by_day(example, spark):
    features = example("features")
    features.run()
    windows: dict[tuple[str, datetime], list[dict[str, Any]]] = defaultdict(list)
    for each in features.rows("activity")[:-1]:
        for step in range(1, 7):
            windows[each["user"], floor(each["at"], 600) + timedelta(minutes=10 * step)].append(each)
    wanted = {}
    for (user, end), actions in windows.items():
        bought = [each["amount"] for each in actions if each["action"] == "buy"]
        wanted[user, end] = (
            len(actions),
            len(bought),
            pytest.approx(sum(bought)),
            max(bought, default=0),
            pytest.approx(len(bought) / len(actions)),
            int(end.timestamp()) - int(max(each["at"] for each in actions).timestamp()),
        )
    found = spark.read.parquet(str(features.folder / "features")).collect()
    assert {str(each.day) for each in found} <= {"2026-03-01"}
    measured = ("actions", "purchases", "spent", "largest", "conversion", "idle_s")
    assert {
        (each.user, each["at"].astimezone(data.NOON.tzinfo)): tuple(each[name] for name in measured) for each in found
    } == wanted


def test_dead_letters_are_counted_by_reason_with_samples(example):
    letters = example("deadletters")
    letters.run()
    reasons: dict[str, list[str]] = defaultdict(list)
    for sample in letters.samples:
        reasons[dict(sample.headers)["headrace-reason"].decode()].append(sample.value.decode())
    wanted = [
        {
            "origin": "signups",
            "reason": reason,
            "hour": data.NOON,
            "letters": len(values),
            "samples": sorted(set(values))[:3],
        }
        for reason, values in reasons.items()
    ]
    same([each for each in letters.found("dead-letters.report") if each["origin"] == "signups"], wanted)
    letters.add(letters.samples[:1])
    letters.run()
    reason = dict(letters.samples[0].headers)["headrace-reason"].decode()
    assert letters.found("dead-letters.report")[-1]["letters"] == len(reasons[reason]) + 1


def test_readings_are_read_and_alarms_written_by_the_schemas_of_the_registry(spark, tmp_path, cluster):
    with Client(cluster.bootstrap) as client:
        data.write(client, "readings")
        Pipelines(spark, tmp_path, cluster).run("readings", (EXAMPLES / "readings.toml").read_text())
        found = list(client.replay("readings.alarms", type=dict))
        assert client.schemas.latest("readings.alarms-value").type == "PROTOBUF"
    readings = [json.loads(each.value, object_hook=_with_times) for each in data.readings()]
    alarms = [each for each in readings if each["celsius"] > 28 or each.get("battery", 1) < 0.1]
    assert {each["sensor"] for each in alarms} > {"s0"}
    # A field that is null is absent in Protobuf.
    assert [each.value for each in found] == [
        {**each, "why": "hot" if each["celsius"] > 28 else "weak battery"} for each in alarms
    ]
    assert [each.key for each in found] == [each["sensor"].encode() for each in alarms]


def test_the_audit_log_answers_who_was_denied_and_who_changed_what(spark, tmp_path):
    """On events of a real broker: an administrator over Kafka, and a user over HTTP who may do nothing."""
    settings = {
        "authorization.enable": True,
        "super.users": "User:ANONYMOUS",
        "sqs.access.keys": "bob:bobs-secret",
    }
    with Broker(settings=settings) as broker, Cluster(broker.bootstrap) as cluster:
        cluster.create_topic("orders", partitions=1)
        cluster.set_topic_settings("orders", {"retention.ms": "1000"})
        sqs = boto3.client(
            "sqs",
            endpoint_url=broker.http_url,
            region_name="us-east-1",
            aws_access_key_id="bob",
            aws_secret_access_key="bobs-secret",
        )
        for name in ("stolen", "stolen"):
            with pytest.raises(ClientError, match="AccessDenied"):
                sqs.create_queue(QueueName=name)
        cluster.delete_topic("orders")
        until(lambda: _audited_count(cluster) >= 5, "the events")
        shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
        Pipelines(spark, tmp_path, cluster).run("audit", (EXAMPLES / "audit.toml").read_text())
        text = (EXAMPLES / "audit.toml").read_text()
        queries = [" ".join(each.replace("#", " ").split()) for each in re.findall(r'sqlite3 audit.db "([^"]+)"', text)]
        with closing(sqlite3.connect(tmp_path / "audit.db")) as tables:
            denied, changed = (tables.execute(query).fetchall() for query in queries)
        assert [each[:4] for each in denied] == [("User:bob", "CreateQueue", "topic/stolen", 2)]
        assert denied[0][4] == "no rule allows User:bob from 127.0.0.1 to create on topic stolen"
        # The pipeline itself may have been recorded by then, too: it creates a topic for dead letters.
        changed = [each for each in changed if each[3] == "topic/orders"]
        assert [each[1:5] for each in changed] == [
            ("User:ANONYMOUS", "CreateTopics", "topic/orders", "success"),
            ("User:ANONYMOUS", "IncrementalAlterConfigs", "topic/orders", "success"),
            ("User:ANONYMOUS", "DeleteTopics", "topic/orders", "success"),
        ]
        assert json.loads(changed[1][5]) == {"settings": {"retention.ms": "1000"}}


def _audited_count(cluster: Cluster) -> int:
    if "__audit" not in cluster.metadata():
        return 0
    return cluster.list_offsets([("__audit", 0)])["__audit", 0].offset


def test_a_day_comes_back_from_the_archive_as_the_readme_says(cluster, tmp_path):
    cluster.create_topic("clicks.all", partitions=1)
    hours = range(-36, 36)
    records = [
        Record(0, NOON_MS + 3_600_000 * hour, str(hour).encode(), b"a click", (("hour", b"%d" % hour),))
        for hour in hours
    ]
    cluster.produce({("clicks.all", 0): build_batch(records)})

    commands = re.findall(r"^    headrace (.*?)(?: +#.*)?$", _section("Replay a day"), flags=re.MULTILINE)
    for at, command in enumerate(commands):
        words = command.replace("archive clicks ", "archive clicks.all ").split()
        done = subprocess.run(
            [sys.executable, "-m", "headrace", *words, "--bootstrap", cluster.bootstrap],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        if at == 0:
            # The archive remembers what the topic does not.
            cluster.delete_records({("clicks.all", 0): len(records)})
    found = list(read_letters(cluster, "clicks.replayed"))
    assert [each.key for each in found] == [str(hour).encode() for hour in range(-12, 12)]
    assert all(each.headers == (("hour", each.key),) for each in found)


def _section(title: str) -> str:
    return (EXAMPLES / "README.md").read_text().split(f"## {title}")[1]
