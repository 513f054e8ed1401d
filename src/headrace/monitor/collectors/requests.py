"""Requests of Kafka clients by API, and of SQS clients by action: counts, errors and times."""

from collections.abc import Iterable, Iterator

from headrace.monitor.scrape import Collector
from headrace.observe.families import Metric, MetricFamily, Sample, counter, histogram
from headrace.observe.request_metrics import PHASES, ActionMetrics, RequestMetrics

KAFKA_REQUESTS = counter(
    "headrace_kafka_requests_total", "Requests that were answered. FetchFollower are the fetches of brokers.", "api"
)
KAFKA_ERRORS = counter(
    "headrace_kafka_request_errors_total",
    "Errors in answers by Kafka's name; those of partitions count one by one.",
    "api",
    "error",
)
KAFKA_SECONDS = histogram(
    "headrace_kafka_request_seconds",
    "Time of a request in its phases queue, local, remote (waiting for followers, disk, or data) and response, "
    "and in total.",
    "api",
    "phase",
)
SQS_REQUESTS = counter(
    "headrace_sqs_requests_total",
    "Requests for queues over HTTP, by action (of SQS, or a call of the SDK) and code: Success, or that of the error.",
    "action",
    "code",
)
SQS_SECONDS = histogram(
    "headrace_sqs_request_seconds", "Time of such a request, with the wait of a receive for messages.", "action"
)
METRICS = (KAFKA_REQUESTS, KAFKA_ERRORS, KAFKA_SECONDS, SQS_REQUESTS, SQS_SECONDS)


def kafka_request_collector(requests: RequestMetrics) -> Collector:
    async def collect() -> Iterable[MetricFamily]:
        return (
            KAFKA_REQUESTS.family(_counts(KAFKA_REQUESTS, requests)),
            KAFKA_ERRORS.family(_errors(KAFKA_ERRORS, requests)),
            KAFKA_SECONDS.family(_times(KAFKA_SECONDS, requests)),
        )

    return collect


def action_collector(actions: ActionMetrics) -> Collector:
    async def collect() -> Iterable[MetricFamily]:
        answers, times = tuple(actions.answers.items()), tuple(actions.times.items())
        return (
            SQS_REQUESTS.family((SQS_REQUESTS.label_text(*labels), count) for labels, count in answers),
            SQS_SECONDS.family((SQS_SECONDS.label_text(action), found) for action, found in times),
        )

    return collect


def _counts(metric: Metric, requests: RequestMetrics) -> list[Sample]:
    return [(metric.label_text(name), kind.count) for name, kind in requests.kinds.items()]


def _errors(metric: Metric, requests: RequestMetrics) -> list[Sample]:
    return [
        (metric.label_text(name, error), count)
        for name, kind in requests.kinds.items()
        for error, count in kind.errors.items()
    ]


def _times(metric: Metric, requests: RequestMetrics) -> Iterator[Sample]:
    for name, kind in tuple(requests.kinds.items()):
        if kind.count:
            times = kind.times()
            for phase in PHASES:
                yield metric.label_text(name, phase), times[phase]
