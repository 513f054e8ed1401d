"""The options of `writeStream.format("headrace")` and `write`, checked when the query is planned.

| Option | Default | Meaning |
|---|---|---|
| `kafka.bootstrap.servers` | required | `HOST:PORT,HOST:PORT` |
| `topic` | | the topic of all rows; without it the column `topic` has it for each row |
| `delivery` | `at-least-once` | or `exactly-once` |
| `sinkId` | | for `exactly-once`: a name that no other query uses, the same after every restart |
| `compression` | `none` | `gzip`, `snappy`, `lz4` or `zstd` |
| `transactionTimeout` | `15m` | how long a batch may take until its commit is decided |
| `batchBytes` | `1000000` | the largest record batch, before compression |
| `lostTransactions` | `fail` | or `skip`: what to do if a transaction is gone whose commit was decided |
| `user`, `password`, `mechanism`, `token`, `profile` | | the login: see `headrace.pipelines.connection_options` |
| `tls`, `caFile`, `certFile`, `keyFile`, `keyPassword`, `verifyHostname` | | TLS |
| `queryId`, `batchId` | | for batch writes: a write with the same two is done once, however often it is repeated |
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.pipelines.connection_options import (
    CONNECTION_NAMES,
    USE_OURS,
    ConnectionOptions,
    bootstrap_of,
    connection_options,
)
from headrace.pipelines.sink.ledger import is_sink_id
from headrace.pipelines.sink.two_phase import SinkError
from headrace.records.batch import TARGET_BYTES
from headrace.records.compression import Codec

AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
_NAMES = (
    "kafka.bootstrap.servers", "topic", "delivery", "sinkId", "compression", "transactionTimeout", "batchBytes",
    "lostTransactions", "queryId", "batchId", *CONNECTION_NAMES,
)  # fmt: skip
_SPARKS_OWN = {"checkpointlocation", "path", "queryname", "outputmode", "mergeschema", "overwriteschema"}
_UNITS_MS = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
_DEFAULT_TIMEOUT = "15m"


class WrongOption(SinkError):
    """A sink option that is missing, unknown or has an invalid value."""


@dataclass(frozen=True)
class SinkOptions:
    bootstrap: str
    topic: str | None
    is_exactly_once: bool
    sink_id: str
    """Empty for at-least-once without a name."""
    codec: Codec
    transaction_timeout_ms: int
    batch_bytes: int
    skips_lost: bool
    query_id: str | None
    batch_id: int | None
    connection: ConnectionOptions = field(default=(), repr=False)


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse the options of a `writeStream` or `write`. Names are case-insensitive, as everywhere in Spark."""
    texts = {name.lower(): str(text).strip() for name, text in given.items()}
    _check_names(texts)

    def choice(name: str, choices: tuple[str, ...]) -> str:
        text = texts.get(name.lower(), choices[0]).lower()
        if text not in choices:
            raise WrongOption(f"the option {name} is one of {', '.join(choices)}, not {text!r}")
        return text

    bootstrap = texts.get("kafka.bootstrap.servers", "") or bootstrap_of(connection_options(texts))
    if not bootstrap:
        raise WrongOption("the option kafka.bootstrap.servers is missing: give the brokers as HOST:PORT,HOST:PORT")
    topic = texts.get("topic")
    if topic == "":
        raise WrongOption("the option topic is empty: name a topic, or leave it out and have a column topic")
    is_exactly_once = choice("delivery", (AT_LEAST_ONCE, EXACTLY_ONCE)) == EXACTLY_ONCE
    sink_id = texts.get("sinkid", "")
    if is_exactly_once and not sink_id:
        raise WrongOption(
            "the option sinkId is missing: exactly-once needs a name that no other query uses and that stays the same "
            "when this one is restarted"
        )
    if sink_id and not is_sink_id(sink_id):
        raise WrongOption(f"the option sinkId has letters, digits, '.', '_' and '-', up to 200, not {sink_id!r}")
    batch_id = _number("batchId", texts["batchid"], 0) if "batchid" in texts else None
    if (batch_id is None) != ("queryid" not in texts):
        raise WrongOption("the options queryId and batchId come together: the two name a write that is done once")
    return SinkOptions(
        bootstrap=bootstrap,
        topic=topic,
        is_exactly_once=is_exactly_once,
        sink_id=sink_id,
        codec=Codec[choice("compression", ("none", "gzip", "snappy", "lz4", "zstd")).upper()],
        transaction_timeout_ms=_duration_ms("transactionTimeout", texts.get("transactiontimeout", _DEFAULT_TIMEOUT)),
        batch_bytes=_number("batchBytes", texts.get("batchbytes", str(TARGET_BYTES)), 1024),
        skips_lost=choice("lostTransactions", ("fail", "skip")) == "skip",
        query_id=texts.get("queryid"),
        batch_id=batch_id,
        connection=connection_options(texts),
    )


def _check_names(texts: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _NAMES}
    for name in texts:
        if name.startswith(("kafka.ssl.", "kafka.sasl.", "kafka.security.")):
            raise WrongOption(f"the option {name} cannot be used: {USE_OURS}")
        if name not in known and name not in _SPARKS_OWN:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {known[close[0]]}?" if close else f"there are {', '.join(_NAMES)}"
            raise WrongOption(f"a sink has no option {name}: {hint}")


def _number(name: str, text: str, lowest: int) -> int:
    if not text.isdecimal() or int(text) < lowest:
        raise WrongOption(f"the option {name} is a whole number from {lowest} on, not {text!r}")
    return int(text)


def _duration_ms(name: str, text: str) -> int:
    found = re.fullmatch(r"(\d+)\s*(|ms|s|m|h)", text.lower())
    if found is None or int(found[1]) == 0:
        raise WrongOption(f"the option {name} is a time such as 15m, 90s or 1500ms, not {text!r}")
    return int(found[1]) * _UNITS_MS[found[2]]
