"""Each rule has facts that break it and facts that do not, and says so in words with numbers."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import typer

import headrace
from headrace.cli.main import app
from headrace.monitor.health import rules
from headrace.monitor.health.checks import problems
from headrace.monitor.health.facts import (
    CertificateFact,
    ClusterFacts,
    DiskFacts,
    GroupFact,
    HealthFacts,
    PartitionCounts,
    PipelineFact,
    QueueFact,
    StoreFacts,
    TransactionFact,
)
from headrace.monitor.health.problem import MAX_PER_RULE, SEVERITIES, HealthProblem, health_view, status_of, summary
from headrace.monitor.health.rules import RULES

GIB = 2**30
DAY_S = 86_400.0
FINE = HealthFacts(
    1,
    cluster=ClusterFacts(3, feature_level=2, possible_level=2),
    store=StoreFacts("etcd", True, 3.0),
    disk=DiskFacts("/data", 100 * GIB, 50 * GIB, 86_401.0),
    loop_lag_s=0.1,
    certificates=[CertificateFact("tls.cert.file", 31 * DAY_S)],
    clock_skews={2: 0.3, 3: -1.9},
    groups=[GroupFact("slow", 1, 10_000, 500, 299.0), GroupFact("idle", 0, 10, 0, 9_999.0)],
    queues=[QueueFact("fresh", 5, 20.0, 9_999.0), QueueFact("drained", 0, 0.0, 9_999.0)],
    transactions=[TransactionFact("shop-1", 899.0)],
    pipelines=[PipelineFact("clean", "running", silent_s=5.0, restarts=2), PipelineFact("off", "stopped", False, 9e9)],
)


def cluster(**changes: object) -> HealthFacts:
    return replace(FINE, cluster=replace(FINE.cluster, **changes))  # type: ignore[arg-type]


CASES: list[tuple[str, str, HealthFacts, str]] = [
    ("broker_down", "critical", cluster(down=[3]), "Broker 3 of 3 is down."),
    ("broker_silent", "warning", replace(FINE, silent=[2]), "does not answer broker 1"),
    ("no_controller", "critical", cluster(has_controller=False), "No broker is the controller"),
    ("offline_partitions", "critical", cluster(offline=[PartitionCounts("orders", 2, 5)]), "2 partitions of topic ord"),
    ("under_min_isr", "critical", cluster(under_min_isr=[PartitionCounts("orders", 1, 0)]), "1 partition of topic ord"),
    ("under_replicated", "warning", cluster(lacking={3: 1200}), "1,200 partitions lack the replica of broker 3"),
    ("feature_level", "info", cluster(possible_level=3), "feature level 2; every broker supports 3"),
    ("store_unreachable", "critical", replace(FINE, store=StoreFacts("etcd", False)), "Broker 1 cannot reach etcd"),
    ("store_slow", "warning", replace(FINE, store=StoreFacts("etcd", True, 812.0)), "waits 812 ms"),
    ("disk_full", "warning", replace(FINE, disk=DiskFacts("/data", 100 * GIB, 14 * GIB)), "has 14.0 GiB (14%) left"),
    ("disk_full", "critical", replace(FINE, disk=DiskFacts("/data", 100 * GIB, 4 * GIB)), "has 4.0 GiB (4%) left"),
    (
        "disk_full",
        "critical",
        replace(
            FINE, disk=DiskFacts("/data", 100 * GIB, 90 * GIB, effect="producers are slowed down until there is room")
        ),
        "left on the disk of /data: producers are slowed down until there is room.",
    ),
    ("disk_filling", "warning", replace(FINE, disk=DiskFacts("/d", GIB, GIB // 2, 18_000.0)), "full disk in 5 h"),
    (
        "disk_filling",
        "critical",
        replace(FINE, disk=DiskFacts("/d", GIB, GIB // 2, 10_800.0)),
        "full disk in 3 h",
    ),
    ("data_dir_failed", "critical", replace(FINE, failure="[Errno 5] EIO"), "takes no more writes: its data directory"),
    (
        "group_stuck",
        "warning",
        replace(FINE, groups=[GroupFact("billing", 2, 1500, 3, 300.0)]),
        "committed nothing for",
    ),
    ("group_unattended", "warning", replace(FINE, groups=[GroupFact("g", 0, 15, 3, 300.0)]), "3 more than 5 min ago"),
    ("queue_unattended", "warning", replace(FINE, queues=[QueueFact("mail", 7, 301.0, 400.0)]), "oldest for 5 min"),
    (
        "dead_letters",
        "warning",
        replace(FINE, queues=[QueueFact("mail-dlq", 7, 1.0, 1.0, 12)]),
        "12 messages were dead",
    ),
    ("transaction_open", "warning", replace(FINE, transactions=[TransactionFact("shop-1", 7200.0)]), "open for 2 h"),
    ("pipeline_failed", "critical", replace(FINE, pipelines=[PipelineFact("p", "failed", last_error="no x")]), "no x"),
    ("pipeline_restarting", "warning", replace(FINE, pipelines=[PipelineFact("p", "running", restarts=3)]), "3 times"),
    ("pipeline_silent", "warning", replace(FINE, pipelines=[PipelineFact("p", "running", silent_s=31.0)]), "for 31 s"),
    ("certificate", "warning", replace(FINE, certificates=[CertificateFact("c", 20 * DAY_S)]), "expires in 20 days"),
    ("certificate", "critical", replace(FINE, certificates=[CertificateFact("c", 3 * DAY_S)]), "expires in 3 days"),
    ("certificate", "critical", replace(FINE, certificates=[CertificateFact("c", -7200.0)]), "expired 2 h ago"),
    ("master_key", "critical", replace(FINE, locked_topics=["a", "b"]), "can neither read nor write them: a, b."),
    ("master_key", "critical", replace(FINE, locked_topics=[*"abcde"]), "write them: a, b, c and 2 more."),
    ("clock_skew", "warning", replace(FINE, clock_skews={2: 2.5}), "2.5 s ahead of that of broker 1"),
    ("clock_skew", "critical", replace(FINE, clock_skews={2: -61.0}), "61.0 s behind that of broker 1"),
    ("event_loop_lag", "warning", replace(FINE, loop_lag_s=0.7), "held up for 0.7 s"),
    ("event_loop_lag", "critical", replace(FINE, loop_lag_s=6.0), "held up for 6.0 s"),
    ("request_budget", "warning", replace(FINE, budget_wait_s=30.0), "waiting for 30 s"),
    ("login_failures", "warning", replace(FINE, login_failures=5000), "refused 5,000 logins"),
    ("insecure_listener", "warning", replace(FINE, open_listeners=["0.0.0.0:9092"]), "serves 0.0.0.0:9092 without"),
]


def test_a_cluster_that_is_fine_has_no_problem():
    assert problems(FINE) == []
    assert summary([]) == "Everything is fine."


@pytest.mark.parametrize(("rule", "severity", "facts", "words"), CASES, ids=[f"{row[0]}-{row[1]}" for row in CASES])
def test_each_problem_says_what_is_wrong_and_what_to_do(rule, severity, facts, words):
    (found,) = problems(facts)
    assert (found.id, found.severity) == (rule, severity)
    assert words in found.sentence
    assert "`" in found.advice, "the advice names a command or a setting"
    assert "{" not in found.advice
    assert found.link.startswith("/ui/")


def test_every_rule_has_a_case_for_each_of_its_severities():
    assert {(row[0], row[1]) for row in CASES} == {(rule.id, each) for rule in RULES for each in rule.severities}


def test_ids_and_alerts_are_unique_and_severities_are_in_order():
    assert len({rule.id for rule in RULES}) == len({rule.alert for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert [*rule.severities] == [each for each in SEVERITIES if each in rule.severities]


def test_the_commands_of_advices_exist():
    command = typer.main.get_command(app)
    for rule in RULES:
        for words in re.findall(r"`headrace ((?:[a-z]+ ?)+)", rule.action):
            found, context = command, typer.Context(command)
            for word in words.split():
                if not hasattr(found, "get_command"):
                    break
                found = found.get_command(context, word)
                assert found is not None, f"{rule.id}: headrace {words}"


def test_the_subject_is_quoted_for_the_shell():
    (found,) = problems(replace(FINE, groups=[GroupFact("my group; rm -rf", 1, 9, 9, 999.0)]))
    assert "headrace group describe 'my group; rm -rf' --members" in found.advice
    assert found.link == "/ui/groups/my%20group%3B%20rm%20-rf"


def test_links_lead_to_pages_of_the_dashboard():
    routes = Path(headrace.__file__).parent / "dashboard/assets/pages/routes.js"
    pages = {path.split("/")[0] for path in re.findall(r'^  \["([^"]*)"', routes.read_text(), flags=re.MULTILINE)}
    for _, _, facts, _ in CASES:
        (found,) = problems(facts)
        assert found.link.split("/")[2] in pages, found.id
    (offline,) = problems(cluster(offline=[PartitionCounts("orders", 2, 5)]))
    assert offline.link == "/ui/topics/orders"


def test_many_problems_of_a_kind_are_summed_up():
    groups = [GroupFact(f"g{number}", 1, number, 1, 999.0) for number in range(5000)]
    found = problems(replace(FINE, groups=groups))
    assert len(found) == MAX_PER_RULE + 1
    assert {each.subject for each in found} == {f"g{number}" for number in range(4990, 5000)} | {""}
    (rest,) = (each for each in found if not each.subject)
    assert rest.sentence == "4,990 more groups are stuck."
    assert "GROUP" in rest.advice


def test_a_setting_moves_the_threshold():
    facts = replace(FINE, limits=FINE.limits._replace(stuck_s=100.0, disk_free_fraction=0.6, transaction_open_s=60.0))
    assert {each.id for each in problems(facts)} == {"group_stuck", "disk_full", "transaction_open"}


def test_a_pipeline_that_should_not_run_may_be_silent():
    assert problems(replace(FINE, pipelines=[PipelineFact("p", "stopped", is_wanted=False, silent_s=9e9)])) == []


def test_the_summary_names_the_worst_and_counts_the_others():
    found = problems(cluster(down=[3], lacking={3: 4}, possible_level=9))
    assert status_of(found) == "critical"
    assert summary(found) == "1 critical problem and 1 warning; the worst: Broker 3 of 3 is down."
    assert summary(found[:1]) == "Broker 3 of 3 is down."
    assert status_of(problems(cluster(possible_level=9))) == "ok"


def test_the_same_problem_seen_by_two_brokers_is_one():
    view = health_view(
        [
            HealthProblem("clock_skew", "warning", "seen by 1", "", "broker 2", ""),
            HealthProblem("clock_skew", "critical", "seen by 3", "", "broker 2", ""),
        ]
    )
    assert [(each.severity, each.sentence) for each in view.problems] == [("critical", "seen by 3")]


def test_thresholds_are_in_the_words_of_the_rules():
    by_id = rules.BY_ID
    assert f"{rules.STORE_SLOW_MS:.0f} ms" in by_id["store_slow"].threshold
    assert rules.DISK_FULL_CRITICAL_S == 3 * 3600
    assert rules.CERTIFICATE_WARNING_S == 30 * DAY_S
    assert "30 days" in by_id["certificate"].threshold
