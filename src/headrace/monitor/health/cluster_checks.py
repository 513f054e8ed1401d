"""Problems that the image shows: brokers, leaders, replicas, the controller, the feature level. Pure."""

from collections.abc import Iterator

from headrace.monitor.health.facts import HealthFacts, PartitionCounts
from headrace.monitor.health.problem import HealthProblem
from headrace.monitor.health.report import bounded, counted, problem

_PAGE = "cluster"


def cluster_problems(facts: HealthFacts) -> Iterator[HealthProblem]:
    cluster = facts.cluster
    yield from bounded(cluster.down, lambda each: _down(each, cluster.broker_count), "brokers are down")
    yield from bounded(facts.silent, lambda each: _silent(each, facts.broker_id), "brokers do not answer")
    if not cluster.has_controller:
        yield problem(
            "no_controller",
            "No broker is the controller: leaders are not elected, and topics cannot be created.",
            page=_PAGE,
        )
    yield from bounded(cluster.offline, _offline, "topics have partitions without a leader")
    yield from bounded(cluster.under_min_isr, _under_min_isr, "topics have too few replicas in sync")
    yield from bounded(sorted(cluster.lacking.items()), _lacking, "brokers are not in sync")
    if cluster.feature_level < cluster.possible_level:
        yield problem(
            "feature_level",
            f"The cluster has feature level {cluster.feature_level}; every broker supports {cluster.possible_level}.",
            page=_PAGE,
        )


def _down(broker: int, broker_count: int) -> HealthProblem:
    return problem("broker_down", f"Broker {broker} of {broker_count} is down.", subject=f"broker {broker}", page=_PAGE)


def _silent(broker: int, asking: int) -> HealthProblem:
    return problem(
        "broker_silent",
        f"Broker {broker} has its lease, but does not answer broker {asking}.",
        subject=f"broker {broker}",
        page=_PAGE,
    )


def _offline(found: PartitionCounts) -> HealthProblem:
    verb = "has" if found.partitions == 1 else "have"
    return problem(
        "offline_partitions",
        f"{counted(found.partitions, 'partition')} of topic {found.topic} {verb} no leader (the first: "
        f"{found.example}): nothing can be written to or read from there.",
        subject=found.topic,
        page="topics",
    )


def _under_min_isr(found: PartitionCounts) -> HealthProblem:
    verb = "has" if found.partitions == 1 else "have"
    return problem(
        "under_min_isr",
        f"{counted(found.partitions, 'partition')} of topic {found.topic} {verb} fewer replicas in sync than "
        f"min.insync.replicas (the first: {found.example}): acks=all is refused.",
        subject=found.topic,
        page="topics",
    )


def _lacking(found: tuple[int, int]) -> HealthProblem:
    broker, count = found
    verb = "lacks" if count == 1 else "lack"
    return problem(
        "under_replicated",
        f"{counted(count, 'partition')} {verb} the replica of broker {broker}, which is not in sync.",
        subject=f"broker {broker}",
        page=_PAGE,
    )
