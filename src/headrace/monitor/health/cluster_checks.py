"""Problems that the image shows: brokers, leaders, replicas, the controller, the feature level. Pure."""

from collections.abc import Iterator, Sequence

from headrace.monitor.health.facts import ClusterFacts, HealthFacts, PartitionCounts
from headrace.monitor.health.problem import HealthProblem
from headrace.monitor.health.report import bounded, counted, problem

_PAGE = "cluster"


def cluster_problems(facts: HealthFacts) -> Iterator[HealthProblem]:
    cluster = facts.cluster
    yield from bounded(_down(cluster), "brokers are down")
    yield from bounded(_silent(facts), "brokers do not answer")
    if not cluster.has_controller:
        yield problem(
            "no_controller",
            "No broker is the controller: leaders are not elected, and topics cannot be created.",
            page=_PAGE,
        )
    yield from bounded(_offline(cluster.offline), "topics have partitions without a leader")
    yield from bounded(_under_min_isr(cluster.under_min_isr), "topics have too few replicas in sync")
    yield from bounded(_lacking(cluster), "brokers are not in sync")
    if cluster.feature_level < cluster.possible_level:
        yield problem(
            "feature_level",
            f"The cluster has feature level {cluster.feature_level}; every broker supports {cluster.possible_level}.",
            page=_PAGE,
        )


def _down(cluster: ClusterFacts) -> Iterator[HealthProblem]:
    for broker in cluster.down:
        yield problem(
            "broker_down",
            f"Broker {broker} of {cluster.broker_count} is down.",
            subject=f"broker {broker}",
            page=_PAGE,
        )


def _silent(facts: HealthFacts) -> Iterator[HealthProblem]:
    for broker in facts.silent:
        yield problem(
            "broker_silent",
            f"Broker {broker} has its lease, but does not answer broker {facts.broker_id}.",
            subject=f"broker {broker}",
            page=_PAGE,
        )


def _offline(topics: Sequence[PartitionCounts]) -> Iterator[HealthProblem]:
    for topic, count, example in topics:
        verb = "has" if count == 1 else "have"
        yield problem(
            "offline_partitions",
            f"{counted(count, 'partition')} of topic {topic} {verb} no leader (the first: {example}): "
            "nothing can be written to or read from there.",
            subject=topic,
            page="topics",
        )


def _under_min_isr(topics: Sequence[PartitionCounts]) -> Iterator[HealthProblem]:
    for topic, count, example in topics:
        verb = "has" if count == 1 else "have"
        yield problem(
            "under_min_isr",
            f"{counted(count, 'partition')} of topic {topic} {verb} fewer replicas in sync than min.insync.replicas "
            f"(the first: {example}): acks=all is refused.",
            subject=topic,
            page="topics",
        )


def _lacking(cluster: ClusterFacts) -> Iterator[HealthProblem]:
    for broker, count in sorted(cluster.lacking.items()):
        verb = "lacks" if count == 1 else "lack"
        yield problem(
            "under_replicated",
            f"{counted(count, 'partition')} {verb} the replica of broker {broker}, which is not in sync.",
            subject=f"broker {broker}",
            page=_PAGE,
        )
