"""`headrace quota` against a broker: quotas are set, listed and removed, and their use is shown."""

import json
import shlex
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner

from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.main import app
from headrace.testing import Broker
from tests.waiting import until

from . import raw_client
from .batches import batch

Run = Callable[[str], str]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


@pytest.fixture
def run(broker: Broker) -> Run:
    def command(typed: str) -> str:
        result = CliRunner().invoke(
            app, shlex.split(typed), env={"HEADRACE_BOOTSTRAP": broker.bootstrap, "COLUMNS": "200"}
        )
        if isinstance(result.exception, CommandFailed | BadArgument):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout

    return command


def test_quotas_are_set_listed_and_removed(run: Run) -> None:
    assert run("quota list") == "There are no quotas; `headrace quota set --user NAME --produce 5MB` makes one\n"
    assert run("quota set --user alice --produce 5MB --time 12.5") == "user alice: produce 5.0 MiB/s, time 12.5 %\n"
    run("quota set --user alice --client-id-prefix batch- --consume 500K")
    run("quota set --default-user --default-client-id --changes 0.5")
    run("quota set --default-ip --connections 20")
    # A further quota leaves the others as they are.
    assert "produce 5.0 MiB/s" in run("quota set --user alice --changes 3")
    listed = json.loads(run("quota list --json"))
    assert [each["entity"] for each in listed] == [
        {"user": "alice", "client-id-prefix": "batch-"},
        {"user": "alice"},
        {"user": None, "client-id": None},
        {"ip": None},
    ]
    shown = run("quota list")
    assert "500.0 KiB/s" in shown
    assert "<default>" in shown
    # Only the columns that have a value.
    assert shown.split("\n")[0].split() == [
        "USER", "CLIENT-ID", "CLIENT-ID-PREFIX", "IP", "PRODUCE", "CONSUME", "TIME", "CHANGES", "CONNECTIONS",
    ]  # fmt: skip
    assert run("quota remove time --user alice") == "Removed from user alice: time 12.5 %\n"
    with pytest.raises(CommandFailed, match="no such quota"):
        run("quota remove time --user alice")
    run("quota remove --user alice")
    run("quota remove --user alice --client-id-prefix batch-")
    run("quota remove --default-user --default-client-id")
    run("quota remove --default-ip")
    assert json.loads(run("quota list --json")) == []


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("quota set --produce 5MB", "whose quota"),
        ("quota set --user alice", "give a limit"),
        ("quota set --user alice --default-user --produce 1", "not both"),
        ("quota set --user alice --produce much", "not a number of bytes"),
        ("quota remove speed --user alice", "there is no quota speed"),
    ],
)
def test_what_makes_no_sense(run: Run, typed: str, why: str) -> None:
    with pytest.raises(BadArgument, match=why):
        run(typed)


def test_what_the_broker_refuses(run: Run) -> None:
    with pytest.raises(CommandFailed, match="has no quota 'connection_creation_rate'"):
        run("quota set --user alice --connections 5")
    with pytest.raises(CommandFailed, match="must be greater than 0"):
        run("quota set --user alice --produce 0")


def test_top_shows_who_uses_how_much(broker: Broker, run: Run) -> None:
    run("quota set --client-id greedy --produce 100000")
    raw_client.create_topic(broker.bootstrap, "orders")
    with (
        raw_client.Connection(broker.bootstrap, client_id="greedy") as greedy,
        raw_client.Connection(broker.bootstrap, client_id="modest") as modest,
    ):
        raw_client.produce(greedy, "orders", batch([b"x" * 1_010_000]))

        def use() -> dict[tuple[str, str], dict[str, object]]:
            raw_client.produce(modest, "orders", batch([b"x" * 1000]))
            found = json.loads(run("quota top --once --json"))
            return {(each["client_id"], each["quota"]): each for each in found}

        # Clients without a quota are counted once someone has looked.
        until(lambda: ("modest", "producer_byte_rate") in use())
        found = use()
    mine = found["greedy", "producer_byte_rate"]
    assert mine["limit"] == 100_000
    assert mine["throttled_count"] == 1
    assert found["modest", "producer_byte_rate"]["limit"] is None
    assert found["modest", "request_percentage"]["user"] == "ANONYMOUS"
    assert "greedy" in run("quota top --once")
    run("quota remove --client-id greedy")
