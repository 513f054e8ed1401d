"""All checks of health: facts to problems. Pure."""

from headrace.monitor.health.broker_checks import broker_problems
from headrace.monitor.health.cluster_checks import cluster_problems
from headrace.monitor.health.facts import HealthFacts
from headrace.monitor.health.problem import HealthProblem, sorted_problems
from headrace.monitor.health.work_checks import work_problems


def problems(facts: HealthFacts) -> list[HealthProblem]:
    """The problems that these facts show, the worst first, without regard to how long they have been there."""
    return sorted_problems([*cluster_problems(facts), *broker_problems(facts), *work_problems(facts)])
