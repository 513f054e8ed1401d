"""A problem is shown when it lasts, and cleared when it has been gone for a while."""

from headrace.monitor.health.hysteresis import ProblemHistory
from headrace.monitor.health.problem import HealthProblem
from headrace.monitor.health.rules import BY_ID

DOWN = HealthProblem("broker_down", "critical", "Broker 3 is down.", "", "broker 3")
LACKING = HealthProblem("under_replicated", "warning", "1 partition", "", "broker 3")
RAISE_S, CLEAR_S = BY_ID["under_replicated"].raise_after_s, BY_ID["under_replicated"].clear_after_s


def test_a_rule_without_a_wait_shows_at_once():
    assert ProblemHistory().update([DOWN], 0.0) == [DOWN]


def test_a_rule_with_a_wait_shows_when_the_condition_has_lasted():
    history = ProblemHistory()
    assert RAISE_S == 10
    assert history.update([LACKING], 0.0) == []
    assert history.update([LACKING], 5.0) == []
    assert history.update([LACKING], 10.0) == [LACKING]


def test_a_condition_that_ends_before_its_time_is_never_shown():
    history = ProblemHistory()
    history.update([LACKING], 0.0)
    assert history.update([], 5.0) == []
    assert history.update([LACKING], 10.0) == []


def test_a_problem_is_cleared_when_it_has_been_gone_for_a_while():
    history = ProblemHistory()
    history.update([DOWN], 0.0)
    assert history.update([], CLEAR_S - 1) == [DOWN]
    assert history.update([], CLEAR_S) == []


def test_a_value_at_the_threshold_does_not_flap():
    history = ProblemHistory()
    shown = [bool(history.update([DOWN] if step % 2 else [], step * 5.0)) for step in range(1, 60)]
    assert all(shown)


def test_the_latest_words_are_shown():
    history = ProblemHistory()
    history.update([DOWN], 0.0)
    worse = HealthProblem("broker_down", "critical", "Still down.", "", "broker 3")
    assert history.update([worse], 5.0) == [worse]
