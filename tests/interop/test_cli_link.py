"""`headrace link` and the HTTP API of links, between two brokers: from the first mirror to a failover."""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from typer.testing import CliRunner

from headrace import BacklogFull, Client, DeliveryFailed
from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.main import app
from headrace.testing import Broker
from tests.scraped import scrape
from tests.waiting import until

Run = Callable[..., str]


@pytest.fixture
def target() -> Iterator[Broker]:
    with Broker(settings={"link.refresh.interval.ms": 100}) as broker:
        yield broker


@pytest.fixture
def run(target: Broker) -> Run:
    def command(typed: str, given: str = "") -> str:
        environment = {"HEADRACE_BOOTSTRAP": target.bootstrap, "COLUMNS": "200"}
        result = CliRunner().invoke(app, shlex.split(typed), env=environment, input=given)
        if isinstance(result.exception, CommandFailed | BadArgument):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout

    return command


def send(bootstrap: str, values: list[bytes]) -> KafkaError | None:
    """Send to partition 0 of orders; the last error."""
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce("orders", value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    return next((each for each in reversed(errors) if each is not None), None)


def lag(run: Run) -> tuple[int | None, int]:
    (topic,) = json.loads(run("link describe eu --json"))["topics"] or [{"lag_messages": None, "partitions": []}]
    return topic["lag_messages"], sum(each["local_end"] or 0 for each in topic["partitions"])


def test_from_the_first_mirror_to_a_failover(target: Broker, run: Run) -> None:
    with Broker() as source:
        assert send(source.bootstrap, [b"%d" % number for number in range(100)]) is None
        run(f"link create eu --bootstrap {source.bootstrap} --topics 'ord.*'")
        until(lambda: lag(run) == (0, 100))
        shown = run("link describe eu --partitions")
        assert f"eu: active, from {source.bootstrap}" in shown
        assert "orders  orders        mirroring                0         0 ms" in shown
        refused = send(target.bootstrap, [b"here"])
        assert refused is not None
        assert refused.code() == KafkaError.INVALID_REQUEST
        with pytest.raises(CommandFailed, match=r"a mirror of one in another cluster.*headrace link promote"):
            run("produce orders", "here\n")
        with Client(target.bootstrap) as client, pytest.raises(DeliveryFailed, match="headrace link promote") as failed:
            client.publish("orders", "here")
        assert not isinstance(failed.value, BacklogFull), "no one needs to wait for room"

        assert run("link pause eu orders") == "orders of the link eu: paused\n"
        assert "orders  orders        paused" in run("link describe eu")
        run("link resume eu orders")
        run("link pause eu")
        assert lag(run) == (0, 100), "what was known at the last contact"
        assert send(source.bootstrap, [b"100"]) is None
        assert "paused" in run("link list")
        for typed in ("link promote orders --timeout 1", "link promote orders --dry-run"):
            with pytest.raises(CommandFailed, match="1 of 1 topic"):
                run(typed)
        with pytest.raises(CommandFailed, match="headrace link failover"):
            run("link delete eu")
        run("link resume eu")
        until(lambda: lag(run) == (0, 101))
        assert "orders would be writable here once it has everything" in run("link promote orders --dry-run")
        assert lag(run) == (0, 101), "a dry run changes nothing"
        metrics = scrape(target.http_url)
        assert metrics.value("headrace_link_lag_messages", link="eu") == 0
        assert metrics.value("headrace_link_copied_bytes", link="eu") > 100

    assert "orders would be writable here; missing: what it got" in until(
        lambda: text if "missing: what it got" in (text := run("link failover orders --dry-run")) else ""
    )
    (preview,) = json.loads(run("link failover orders --dry-run --json"))
    assert (preview["topic"], preview["missing_messages"]) == ("orders", 0)
    assert "orders is writable here" in run("link failover orders")
    assert send(target.bootstrap, [b"101"]) is None
    run("link delete eu")
    settings = {"bootstrap.servers": target.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe(["orders"])
        values = [int(message.value() or b"-1") for message in consumer.consume(102, timeout=30)]
    assert values == list(range(102))


def test_a_link_is_changed(run: Run) -> None:
    with Broker() as source, Broker() as other:
        assert send(source.bootstrap, [b"1"]) is None
        run(f"link create eu --bootstrap {source.bootstrap} --topics 'none.*' --max-bytes-per-second 5000000")
        assert json.loads(run("link describe eu --json"))["topics"] == []
        shown = run("link alter eu --topics 'ord.*' --max-bytes-per-second none --no-groups")
        assert "Topics: ord.*\nAt most: no limit\nCopied besides records: settings\n" in shown
        until(lambda: lag(run) == (0, 1))

        run("link alter eu --exclude 'x.*' --groups --max-bytes-per-second 7000000")
        link = json.loads(run("link describe eu --json"))["link"]
        assert (link["topics"], link["exclude"]) == (["ord.*"], ["x.*"]), "what is not given stays"
        assert (link["groups"], link["settings"], link["max_bytes_per_second"]) == (True, True, 7_000_000)
        run("link alter eu --exclude ''")
        assert "Copied besides records: groups, settings, acls, quotas\n" in run("link alter eu --sync acls,quotas")
        until(
            lambda: (
                "authorization is off" in json.loads(run("link describe eu --json"))["sync_problems"].get("acls", "")
            )
        )
        assert "Copied besides records: groups, settings\n" in run("link alter eu --sync none")
        assert json.loads(run("link list --json"))[0]["exclude"] == []

        port = source.bootstrap.rpartition(":")[2]
        run(f"link alter eu --bootstrap localhost:{port},{source.bootstrap}")
        assert send(source.bootstrap, [b"2"]) is None
        until(lambda: lag(run) == (0, 2))
        for typed, words in {
            f"link alter eu --bootstrap {other.bootstrap}": "lead to the cluster",
            "link alter eu --bootstrap 127.0.0.1:1": "no broker answers",
            "link alter eu --topics '('": "pattern",
            "link alter us --no-groups": "there is no link us",
        }.items():
            with pytest.raises(CommandFailed, match=words):
                run(typed)
        with pytest.raises(BadArgument, match="say what to change"):
            run("link alter eu")
        assert json.loads(run("link list --json"))[0]["bootstrap"] == [f"localhost:{port}", source.bootstrap]


def test_what_cannot_be_is_said(target: Broker, run: Run) -> None:
    assert run("link list") == ""
    for typed, words in {
        "link create eu --bootstrap 127.0.0.1:1": "no broker answers at 127.0.0.1:1",
        f"link create eu --bootstrap {target.bootstrap}": "this very cluster",
        "link create eu --bootstrap h:1 --topics '('": "pattern",
        "link create eu --bootstrap h:1 --user u": "password",
        "link create eu --bootstrap h": "no address host:port",
        "link describe eu": "there is no link eu",
    }.items():
        with pytest.raises(CommandFailed, match=words):
            run(typed)
