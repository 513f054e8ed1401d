"""Problems of what clients do: groups, queues, transactions and pipelines. Pure."""

from collections.abc import Iterator

from headrace.monitor.health import rules
from headrace.monitor.health.facts import HealthFacts, PipelineFact
from headrace.monitor.health.problem import HealthProblem
from headrace.monitor.health.report import bounded, counted, duration, problem


def work_problems(facts: HealthFacts) -> Iterator[HealthProblem]:
    yield from bounded(_stuck(facts), "groups are stuck")
    yield from bounded(_unattended_groups(facts), "groups without members fall behind")
    yield from bounded(_unattended_queues(facts), "queues have no consumer")
    yield from bounded(_dead_letters(facts), "dead-letter queues got messages")
    yield from bounded(_transactions(facts), "transactions are open for too long")
    failed, restarting, silent = [], [], []
    for pipeline in facts.pipelines:
        if pipeline.state == "failed":
            failed.append(_failed(pipeline))
        elif pipeline.is_wanted and pipeline.silent_s > rules.PIPELINE_SILENT_S:
            silent.append(_silent(pipeline))
        elif pipeline.restarts >= rules.PIPELINE_RESTARTS:
            restarting.append(_restarting(pipeline))
    yield from bounded(failed, "pipelines failed")
    yield from bounded(restarting, "pipelines restart again and again")
    yield from bounded(silent, "pipelines do not report")


def _stuck(facts: HealthFacts) -> Iterator[HealthProblem]:
    """The groups that are furthest behind first."""
    for group in sorted(facts.groups, key=lambda group: -group.lag_messages):
        if group.members and group.lag_growth > 0 and group.idle_s >= facts.limits.stuck_s:
            yield problem(
                "group_stuck",
                f"Group {group.group} is stuck: its {counted(group.members, 'member')} committed nothing for "
                f"{duration(group.idle_s)}, and {counted(group.lag_messages, 'message')} wait.",
                subject=group.group,
                page="groups",
            )


def _unattended_groups(facts: HealthFacts) -> Iterator[HealthProblem]:
    for group in sorted(facts.groups, key=lambda group: -group.lag_messages):
        if not group.members and group.lag_growth > 0 and group.idle_s >= facts.limits.stuck_s:
            yield problem(
                "group_unattended",
                f"Group {group.group} has no members and falls behind: {counted(group.lag_messages, 'message')} wait, "
                f"{group.lag_growth:,} more than {duration(group.idle_s)} ago.",
                subject=group.group,
                page="groups",
            )


def _unattended_queues(facts: HealthFacts) -> Iterator[HealthProblem]:
    for queue in sorted(facts.queues, key=lambda queue: -queue.oldest_age_s):
        if queue.available and min(queue.idle_s, queue.oldest_age_s) >= facts.limits.stuck_s:
            yield problem(
                "queue_unattended",
                f"Queue {queue.queue} has no consumer: {counted(queue.available, 'message')} wait, the oldest for "
                f"{duration(queue.oldest_age_s)}.",
                subject=queue.queue,
                page="queues",
            )


def _dead_letters(facts: HealthFacts) -> Iterator[HealthProblem]:
    for queue in sorted(facts.queues, key=lambda queue: -queue.dead_lettered):
        if queue.dead_lettered:
            verb = "was" if queue.dead_lettered == 1 else "were"
            yield problem(
                "dead_letters",
                f"{counted(queue.dead_lettered, 'message')} {verb} dead-lettered to {queue.queue} in the last "
                f"{duration(rules.DEAD_LETTER_WINDOW_S)}.",
                subject=queue.queue,
                page="queues",
            )


def _transactions(facts: HealthFacts) -> Iterator[HealthProblem]:
    for transaction in sorted(facts.transactions, key=lambda each: -each.open_s):
        if transaction.open_s >= facts.limits.transaction_open_s:
            yield problem(
                "transaction_open",
                f"The transaction of {transaction.transactional_id} is open for {duration(transaction.open_s)}: "
                "consumers with read_committed wait behind it.",
                subject=transaction.transactional_id,
                page="transactions",
            )


def _failed(pipeline: PipelineFact) -> HealthProblem:
    because = f": {pipeline.last_error}" if pipeline.last_error else "."
    return problem(
        "pipeline_failed",
        f"Pipeline {pipeline.pipeline} failed{because}",
        subject=pipeline.pipeline,
        page="pipelines",
    )


def _restarting(pipeline: PipelineFact) -> HealthProblem:
    because = f"; the last error: {pipeline.last_error}" if pipeline.last_error else "."
    return problem(
        "pipeline_restarting",
        f"Pipeline {pipeline.pipeline} was restarted {pipeline.restarts} times in the last "
        f"{duration(rules.PIPELINE_RESTART_WINDOW_S)}{because}",
        subject=pipeline.pipeline,
        page="pipelines",
    )


def _silent(pipeline: PipelineFact) -> HealthProblem:
    return problem(
        "pipeline_silent",
        f"Pipeline {pipeline.pipeline} has not reported for {duration(pipeline.silent_s)}.",
        subject=pipeline.pipeline,
        page="pipelines",
    )
