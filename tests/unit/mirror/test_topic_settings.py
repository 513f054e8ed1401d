"""Which settings of the source a mirror topic has, and which it gets when it is promoted."""

from headrace.config.broker import broker_settings
from headrace.mirror.topic_settings import copied_settings, queue_definition

DEFAULTS = broker_settings({}).topic_defaults
JOBS = {"queue.type": "fifo", "queue.dead.letter": "failed", "queue.attributes": "{}", "retention.ms": "-1"}


def test_the_definition_of_a_queue_waits_for_the_promotion() -> None:
    assert copied_settings(JOBS, DEFAULTS) == ({"retention.ms": "-1"}, frozenset())
    assert queue_definition(JOBS, 1, "eu.", DEFAULTS) == (
        {"queue.type": "fifo", "queue.dead.letter": "eu.failed"},
        "",
    )
    assert queue_definition(JOBS, 1, "", DEFAULTS)[0]["queue.dead.letter"] == "failed"
    for topic in ({"retention.ms": "5"}, {"queue.type": "none"}):
        assert queue_definition(topic, 1, "eu.", DEFAULTS) == ({}, "")


def test_a_queue_that_is_not_possible_here_stays_a_topic() -> None:
    for settings, partitions, words in (
        (JOBS, 2, "one partition"),
        ({**JOBS, "queue.type": "other"}, 1, "queue.type"),
        ({**JOBS, "queue.new.setting": "1"}, 1, "queue.new.setting"),
    ):
        queue, problem = queue_definition(settings, partitions, "", DEFAULTS)
        assert (queue, words in problem) == ({}, True), problem
