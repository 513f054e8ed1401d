"""Checks once, before work begins, that brokers answer: a wrong address is an error within seconds, instead of after
the retries for a broker that is temporarily down."""

import time
from collections.abc import Iterable
from concurrent.futures import Future, as_completed

from headrace.client.threads import DaemonThreads
from headrace.config.credentials import Credentials
from headrace.pipelines.connection_options import ConnectionOptions, credentials_of
from headrace.pipelines.errors import NotReady
from headrace.pipelines.spec.model import Spec
from headrace.wire import Cluster, TimedOut, Timeouts, WireError

WITHIN_S = 2.5
"""Time limit for all brokers of a pipeline together."""
_ONCE = Timeouts(connect_s=2.0, request_s=WITHIN_S, patience_s=0.0)


def check_brokers(spec: Spec) -> None:
    """Raise `NotReady` if the brokers of a pipeline do not answer."""
    check_reached(brokers_of(spec), spec.connection)


def brokers_of(spec: Spec) -> list[str]:
    """The bootstrap servers of a pipeline, without duplicates."""
    read = [spec.bootstrap_of(source) for source in spec.streams.values()]
    written = [spec.bootstrap_of(sink) for sink in spec.sinks.values() if sink.topic is not None]
    return [*dict.fromkeys([*read, *written])]


def check_reached(bootstraps: Iterable[str], connection: ConnectionOptions = ()) -> None:
    """Raise `NotReady` if no broker of one of these bootstrap servers answers within `WITHIN_S`.

    All addresses are tried at the same time; of a list of servers, one that answers is enough.
    """
    credentials = credentials_of(connection)
    servers = {each: _addresses(each) for each in bootstraps}
    threads = DaemonThreads(max(1, sum(map(len, servers.values()))), "headrace-reach")
    deadline_s = time.monotonic() + WITHIN_S
    try:
        asked = {
            each: {threads.submit(_ask, one, credentials): one for one in found} for each, found in servers.items()
        }
        for bootstrap, answers in asked.items():
            if reason := _failure(answers, deadline_s):
                raise NotReady(f"{reason} (`headrace doctor --bootstrap {bootstrap}` finds out why)")
    finally:
        threads.shutdown(wait=False)


def _addresses(bootstrap: str) -> list[str]:
    """The addresses of bootstrap servers, one by one. For an empty list, `Cluster` raises the error."""
    return [each.strip() for each in bootstrap.split(",") if each.strip()] or [bootstrap]


def _ask(address: str, credentials: Credentials) -> None:
    with Cluster(address, client_id="headrace-pipeline", timeouts=_ONCE, credentials=credentials) as cluster:
        cluster.metadata(())


def _failure(answers: dict[Future[None], str], deadline_s: float) -> str:
    """Why no address answered; empty as soon as one does."""
    reasons: dict[str, str] = {}
    try:
        for done in as_completed(answers, timeout=max(0.0, deadline_s - time.monotonic())):
            error = done.exception()
            if error is None:
                return ""
            if not isinstance(error, WireError):
                raise error
            if not isinstance(error, TimedOut):
                reasons[answers[done]] = str(error)
    except TimeoutError:
        pass
    return "; ".join(reasons.get(each) or _silence(each) for each in answers.values())


def _silence(address: str) -> str:
    return f"no broker answers at {address}: no answer within {WITHIN_S:g} s"
