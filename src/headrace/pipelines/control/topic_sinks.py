"""The topic sinks of a pipeline: their options, and the clean-up of their open transactions."""

from collections.abc import Iterable, Mapping

from headrace.pipelines.connection_options import credentials_of, spark_options
from headrace.pipelines.sink.broker import WireBroker
from headrace.pipelines.sink.options import EXACTLY_ONCE, sink_options
from headrace.pipelines.sink.two_phase import take_over
from headrace.pipelines.spec.model import Sink, Spec
from headrace.wire import Cluster, Timeouts

DEAD_LETTERS = "dead-letters-"
"""Prefix of the names of dead-letter queries, before the source's name."""
REJECTED = "rejected-"

_CLEANING = Timeouts(connect_s=5, request_s=30, patience_s=15)


def topic_sinks(spec: Spec) -> dict[str, dict[str, str]]:
    """The sink options of each query that writes to topics. The sink id is the same wherever the pipeline runs."""
    found = {
        name: {**_options(spec, name, spec.bootstrap_of(sink), sink.delivery), "topic": sink.topic, **_given(sink)}
        for name, sink in spec.sinks.items()
        if sink.topic is not None
    }
    if spec.errors.on_error == "dead-letter":
        for name, source in spec.streams.items():
            if source.can_be_bad:
                query = DEAD_LETTERS + name
                found[query] = _options(spec, query, spec.bootstrap_of(source), EXACTLY_ONCE)
    return found


def rejected_sink(spec: Spec, query: str, source: str) -> dict[str, str]:
    """The sink options for dead letters of records that failed in the steps of a query."""
    name = f"{REJECTED}{query}-{source}"
    return _options(spec, name, spec.bootstrap_of(spec.sources[source]), EXACTLY_ONCE)


def _options(spec: Spec, query: str, bootstrap: str, delivery: str) -> dict[str, str]:
    own = {"kafka.bootstrap.servers": bootstrap, "sinkId": f"{spec.name}.{query}", "delivery": delivery}
    return own | spark_options(spec.connection)


def _given(sink: Sink) -> dict[str, str]:
    return {name: str(value) for name, value in sink.options.items()}


def clean_up(options: Mapping[str, str]) -> None:
    """End the open transactions of an exactly-once topic sink whose query will not be restarted.

    A batch past its commit point is committed, any other is aborted. A restarted query does this itself. Without
    either, transactions that were open when a query was killed block read_committed consumers until transactionTimeout,
    and prepared transactions block them without end.
    """
    found = sink_options(options)
    if found.is_exactly_once:
        credentials = credentials_of(found.connection)
        with Cluster(found.bootstrap, timeouts=_CLEANING, credentials=credentials) as cluster:
            take_over(
                WireBroker(cluster, found.sink_id, timeout_ms=found.transaction_timeout_ms, skips_lost=found.skips_lost)
            )


def clean_up_all(sinks: Iterable[Mapping[str, str]]) -> None:
    for options in sinks:
        clean_up(options)
