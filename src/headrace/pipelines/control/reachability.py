"""Whether brokers can be reached at all, asked once before work begins: a wrong address is an error within seconds, and
not after the time for which a broker that is away is waited for."""

import time
from collections.abc import Iterable
from concurrent.futures import Future, as_completed

from headrace.client.threads import DaemonThreads
from headrace.pipelines.errors import NotReady
from headrace.pipelines.spec.model import Spec
from headrace.wire import Cluster, TimedOut, Timeouts, WireError

WITHIN_S = 2.5
"""All brokers of a pipeline together have this long to answer."""
_ONCE = Timeouts(connect_s=2.0, request_s=WITHIN_S, patience_s=0.0)


def brokers_of(spec: Spec) -> list[str]:
    """The addresses that a pipeline needs, each once."""
    read = [spec.bootstrap_of(source) for source in spec.streams.values()]
    written = [spec.bootstrap_of(sink) for sink in spec.sinks.values() if sink.topic is not None]
    return [*dict.fromkeys([*read, *written])]


def check_reached(bootstraps: Iterable[str]) -> None:
    """Raise `NotReady` if no broker answers at one of these within `WITHIN_S`.

    All addresses are asked at the same time; one that answers is enough for bootstrap servers that name several.
    """
    servers = {each: _addresses(each) for each in bootstraps}
    threads = DaemonThreads(max(1, sum(map(len, servers.values()))), "headrace-reach")
    deadline_s = time.monotonic() + WITHIN_S
    try:
        asked = {each: {threads.submit(_ask, one): one for one in found} for each, found in servers.items()}
        for bootstrap, answers in asked.items():
            if reason := _failure(answers, deadline_s):
                raise NotReady(f"{reason} (`headrace doctor --bootstrap {bootstrap}` finds out why)")
    finally:
        threads.shutdown(wait=False)


def _addresses(bootstrap: str) -> list[str]:
    """Each address by itself. Without one, `Cluster` says what is wrong."""
    return [each.strip() for each in bootstrap.split(",") if each.strip()] or [bootstrap]


def _ask(address: str) -> None:
    with Cluster(address, client_id="headrace-pipeline", timeouts=_ONCE) as cluster:
        cluster.metadata(())


def _failure(answers: dict[Future[None], str], deadline_s: float) -> str:
    """Why no address answers; empty as soon as one does."""
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
