"""Which quotas a link sets and removes."""

from math import inf, nan

from headrace.mirror.quota_plan import SourceQuotas, planned_quotas, problem_with_quotas, read_quotas

ALICE = (("user", "alice"),)


def test_quotas_that_were_set_here_are_left_alone() -> None:
    plan = planned_quotas({"a": 1.0, "b": 2.0}, {"b": 9.0, "c": 3.0}, {})
    assert (plan.values, plan.brought, plan.retained) == ({"a": 1.0, "b": 9.0, "c": 3.0}, {"a": 1.0}, ("b",))
    same = planned_quotas({"b": 9.0}, {"b": 9.0}, {})
    assert (same.values, same.brought, same.retained) == ({"b": 9.0}, {}, ()), "the link has not brought it"


def test_quotas_that_the_link_has_brought_follow_the_source() -> None:
    plan = planned_quotas({"a": 5.0}, {"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 1.0, "b": 2.0})
    assert (plan.values, plan.brought) == ({"a": 5.0, "c": 3.0}, {"a": 5.0})
    gone = planned_quotas({}, {"a": 1.0}, {"a": 1.0})
    assert (gone.values, gone.brought) == ({}, {})
    changed_here = planned_quotas({}, {"a": 7.0}, {"a": 1.0})
    assert (changed_here.values, changed_here.brought) == ({"a": 7.0}, {}), "it is of this cluster now"
    removed_here = planned_quotas({"a": 1.0}, {}, {"a": 1.0})
    assert removed_here.values == {"a": 1.0}, "it comes back"


def test_quotas_of_sources_are_checked() -> None:
    found = read_quotas(
        [
            ([("user", "alice")], [("producer_byte_rate", 100.0), ("consumer_byte_rate", nan), ("other", 1.0)]),
            ([("user", None)], [("request_percentage", inf)]),
            ([("planet", "mars")], [("producer_byte_rate", 1.0)]),
            ([("user", "x" * 2000)], [("producer_byte_rate", 1.0)]),
            ([("topic-prefix", "a.")], [("stored_bytes", 5.0)]),
            ([("queue", "jobs")], [("sqs_request_rate", 5.0)]),
            ([], [("producer_byte_rate", 1.0)]),
        ],
        "eu.",
    )
    assert found.quotas == {
        ALICE: {"producer_byte_rate": 100.0},
        (("topic-prefix", "eu.a."),): {"stored_bytes": 5.0},
        (("queue", "eu.jobs"),): {"sqs_request_rate": 5.0},
    }
    assert len(found.unusable) == 6
    assert "6 quotas of the source are not possible here" in problem_with_quotas(found, {})
    assert "a of user alice" in problem_with_quotas(SourceQuotas({}), {ALICE: ("a",)})
    assert problem_with_quotas(SourceQuotas({}), {}) == ""
