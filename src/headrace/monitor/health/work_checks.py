"""Problems of what clients do: groups, queues, transactions and pipelines. Pure."""

from collections.abc import Iterator

from headrace.monitor.health import rules
from headrace.monitor.health.facts import GroupFact, HealthFacts, PipelineFact, QueueFact, TransactionFact
from headrace.monitor.health.problem import HealthProblem
from headrace.monitor.health.report import bounded, counted, duration, problem


def work_problems(facts: HealthFacts) -> Iterator[HealthProblem]:
    """The groups and queues that are furthest behind first."""
    limits = facts.limits
    behind = [each for each in facts.groups if each.lag_growth > 0 and each.idle_s >= limits.stuck_s]
    behind.sort(key=lambda each: -each.lag_messages)
    yield from bounded([each for each in behind if each.members], _stuck, "groups are stuck")
    left = [each for each in behind if not each.members]
    yield from bounded(left, _unattended_group, "groups without members fall behind")
    yield from _queues(facts)
    old = [each for each in facts.transactions if each.open_s >= limits.transaction_open_s]
    yield from bounded(sorted(old, key=lambda each: -each.open_s), _transaction, "transactions are open for too long")
    yield from _pipelines(facts)


def _queues(facts: HealthFacts) -> Iterator[HealthProblem]:
    stuck_s = facts.limits.stuck_s
    waiting = [each for each in facts.queues if each.available and min(each.idle_s, each.oldest_age_s) >= stuck_s]
    waiting.sort(key=lambda each: -each.oldest_age_s)
    yield from bounded(waiting, _unattended_queue, "queues have no consumer")
    dead = sorted((each for each in facts.queues if each.dead_lettered), key=lambda each: -each.dead_lettered)
    yield from bounded(dead, _dead_letters, "dead-letter queues got messages")


def _pipelines(facts: HealthFacts) -> Iterator[HealthProblem]:
    failed, restarting, silent = list[PipelineFact](), list[PipelineFact](), list[PipelineFact]()
    for pipeline in facts.pipelines:
        if pipeline.state == "failed":
            failed.append(pipeline)
        elif pipeline.is_wanted and pipeline.silent_s > rules.PIPELINE_SILENT_S:
            silent.append(pipeline)
        elif pipeline.restarts >= rules.PIPELINE_RESTARTS:
            restarting.append(pipeline)
    yield from bounded(failed, _failed, "pipelines failed")
    yield from bounded(restarting, _restarting, "pipelines restart again and again")
    yield from bounded(silent, _silent, "pipelines do not report")


def _stuck(group: GroupFact) -> HealthProblem:
    return problem(
        "group_stuck",
        f"Group {group.group} is stuck: its {counted(group.members, 'member')} committed nothing for "
        f"{duration(group.idle_s)}, and {counted(group.lag_messages, 'message')} wait.",
        subject=group.group,
        page="groups",
    )


def _unattended_group(group: GroupFact) -> HealthProblem:
    return problem(
        "group_unattended",
        f"Group {group.group} has no members and falls behind: {counted(group.lag_messages, 'message')} wait, "
        f"{group.lag_growth:,} more than {duration(group.idle_s)} ago.",
        subject=group.group,
        page="groups",
    )


def _unattended_queue(queue: QueueFact) -> HealthProblem:
    return problem(
        "queue_unattended",
        f"Queue {queue.queue} has no consumer: {counted(queue.available, 'message')} wait, the oldest for "
        f"{duration(queue.oldest_age_s)}.",
        subject=queue.queue,
        page="queues",
    )


def _dead_letters(queue: QueueFact) -> HealthProblem:
    verb = "was" if queue.dead_lettered == 1 else "were"
    return problem(
        "dead_letters",
        f"{counted(queue.dead_lettered, 'message')} {verb} dead-lettered to {queue.queue} in the last "
        f"{duration(rules.DEAD_LETTER_WINDOW_S)}.",
        subject=queue.queue,
        page="queues",
    )


def _transaction(transaction: TransactionFact) -> HealthProblem:
    return problem(
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
