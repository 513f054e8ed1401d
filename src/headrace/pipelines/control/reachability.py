"""Whether brokers can be reached at all, asked once before work begins: an address that is wrong is told at once, and
not after the time for which a broker that is away is waited for."""

from collections.abc import Iterable

from headrace.pipelines.errors import NotReady
from headrace.pipelines.spec.model import Spec
from headrace.wire import Cluster, TimedOut, Timeouts, WireError

_ONCE = Timeouts(connect_s=2.0, request_s=2.5, patience_s=0.0)


def brokers_of(spec: Spec) -> list[str]:
    """The addresses that a pipeline needs, each once."""
    read = [spec.bootstrap_of(source) for source in spec.streams.values()]
    written = [spec.bootstrap_of(sink) for sink in spec.sinks.values() if sink.topic is not None]
    return [*dict.fromkeys([*read, *written])]


def check_reached(bootstraps: Iterable[str]) -> None:
    """Raise `NotReady` if nobody answers at one of these. One that takes connections and is slow is given its time."""
    for bootstrap in bootstraps:
        try:
            with Cluster(bootstrap, client_id="headrace-pipeline", timeouts=_ONCE) as cluster:
                cluster.metadata(())
        except TimedOut:
            continue
        except WireError as error:
            raise NotReady(f"{error} (`headrace doctor --bootstrap {bootstrap}` finds out why)") from error
