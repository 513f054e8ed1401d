"""The work of `headrace txn`. librdkafka has no calls for most of it, so brokers are asked directly."""

from contextlib import closing
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

from confluent_kafka import KafkaException, Producer
from kio.schema.errors import ErrorCode

from headrace.cli.admin import REQUEST_TIMEOUT_S, Admin, cli_config
from headrace.cli.errors import CommandFailed
from headrace.cli.names import no_such
from headrace.cli.output import human_duration, table
from headrace.cli.reach import CONNECT_TIMEOUT_S
from headrace.model.errors import ProtocolError
from headrace.model.image import Endpoint
from headrace.protocol.codec import make
from headrace.wire import Timeouts, Unsupported, WireError
from headrace.wire.connection import Build, WireConnection

_DESCRIBE_TRANSACTIONS = 65
_LIST_TRANSACTIONS = 66
_OPEN_STATES = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
_NO_TIMEOUT_MS = 2**31 - 1
_DEFAULT_TIMEOUT_MS = 60_000


def list_all(bootstrap: str, *, open_only: bool) -> list[dict[str, Any]]:
    """The transactional ids of every broker, each of which coordinates some."""
    found = []
    for broker_id, address in sorted(_addresses(bootstrap).items()):
        answer = _ask(address, _LIST_TRANSACTIONS, 1, lambda schema: make(schema.ListTransactionsRequest))
        _check(answer.error_code, "listing the transactions failed")
        found += [
            {
                "transactional_id": str(each.transactional_id),
                "state": str(each.transaction_state),
                "producer_id": int(each.producer_id),
                "coordinator": broker_id,
            }
            for each in answer.transaction_states
            if not open_only or each.transaction_state in _OPEN_STATES
        ]
    return sorted(found, key=lambda each: str(each["transactional_id"]))


def describe_transaction(bootstrap: str, transactional_id: str) -> dict[str, Any]:
    """A transaction as its coordinator knows it, ready for JSON."""
    known = {str(each["transactional_id"]): each for each in list_all(bootstrap, open_only=False)}
    listed = known.get(transactional_id)
    if listed is None:
        raise CommandFailed(no_such("transactional id", transactional_id, known, "headrace txn list"))
    nothing_open: dict[str, Any] = {"producer_epoch": None, "timeout_ms": None, "started_ms": None, "partitions": []}
    if listed["state"] not in _OPEN_STATES:
        return {**listed, **nothing_open}
    address = _addresses(bootstrap)[listed["coordinator"]]

    def build(schema: ModuleType) -> Any:
        return make(schema.DescribeTransactionsRequest, transactional_ids=(transactional_id,))

    (state,) = _ask(address, _DESCRIBE_TRANSACTIONS, 0, build).transaction_states
    _check(state.error_code, f"describing {transactional_id} failed")
    return {
        "transactional_id": transactional_id,
        "state": str(state.transaction_state),
        "producer_id": int(state.producer_id),
        "coordinator": listed["coordinator"],
        "producer_epoch": int(state.producer_epoch),
        "timeout_ms": round(state.transaction_timeout.total_seconds() * 1000),
        "started_ms": round(state.transaction_start_time.timestamp() * 1000),
        "partitions": [
            [str(topic.topic), int(partition)] for topic in state.topics for partition in sorted(topic.partitions)
        ],
    }


def print_transaction(description: dict[str, Any]) -> None:
    print(f"{description['transactional_id']}: {description['state']}, producer {description['producer_id']}")
    if description["started_ms"] is None:
        print("No transaction is open")
        return
    started = datetime.fromtimestamp(description["started_ms"] / 1000, UTC)
    open_s = max(0.0, (datetime.now(UTC) - started).total_seconds())
    is_limited = description["timeout_ms"] < _NO_TIMEOUT_MS
    limit = (
        f"of {human_duration(description['timeout_ms'] / 1000)}" if is_limited else "without a limit (two-phase commit)"
    )
    print(f"Open for {human_duration(open_s)} {limit}, since {started.isoformat(timespec='seconds')}\n")
    table(None, [("TOPIC", "left"), ("PARTITION", "right")], [tuple(each) for each in description["partitions"]])


def abort_transaction(bootstrap: str, transactional_id: str) -> str:
    """Take over the transactional id, which aborts its open transaction; returns a sentence about the result."""
    before = describe_transaction(bootstrap, transactional_id)
    if before["state"] not in _OPEN_STATES:
        return f"{transactional_id} has no open transaction (its state is {before['state']}): nothing was done"
    # Unchanged, for the next instance of the producer; one in two-phase commit will ask for no limit again.
    is_limited = before["timeout_ms"] < _NO_TIMEOUT_MS
    timeout_ms = max(before["timeout_ms"], 1_000) if is_limited else _DEFAULT_TIMEOUT_MS
    producer = Producer(cli_config(bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms))
    try:
        producer.init_transactions(REQUEST_TIMEOUT_S)
    except KafkaException as failure:
        raise Admin(bootstrap).failed(failure.args[0], f"{transactional_id} was not aborted") from None
    if before["state"] == "PrepareCommit":
        return f"The transaction of {transactional_id} was being committed, and is; its producer is fenced"
    return f"Aborted the transaction of {transactional_id}; its producer is fenced"


def _addresses(bootstrap: str) -> dict[int, Endpoint]:
    return {int(id_): Endpoint(each.host, each.port) for id_, each in Admin(bootstrap).cluster().brokers.items()}


def _ask(address: Endpoint, key: int, highest: int, build: Build) -> Any:
    timeouts = Timeouts(CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, 0.0)
    try:
        with closing(WireConnection(address, client_id="headrace-cli", timeouts=timeouts)) as connection:
            return connection.call(key, highest, build)
    except Unsupported:
        raise CommandFailed("this broker is too old to tell of its transactions") from None
    except (WireError, ProtocolError) as error:
        raise CommandFailed(f"asking the broker at {address} failed: {error}") from None


def _check(code: ErrorCode, what: str) -> None:
    if code != ErrorCode.none:
        raise CommandFailed(f"{what}: {code.name.upper()}")
