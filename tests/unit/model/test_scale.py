"""How many processes a backlog needs: bounds, monotony and the cooldown, for any load."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.scale import PoolScaler, ProcessRate, ScaleRules, SourceLoad, wanted_processes

RULES = ScaleRules(minimum=1, maximum=8, target_s=10.0, cooldown_s=30.0)


def load(waiting: int | None, **known: float | None) -> SourceLoad:
    return replace(SourceLoad("queue emails", waiting), **known)  # type: ignore[arg-type]


@st.composite
def rules(draw: st.DrawFn) -> ScaleRules:
    minimum = draw(st.integers(0, 20))
    return ScaleRules(minimum, draw(st.integers(max(1, minimum), 40)), draw(st.floats(0.1, 600)), 30.0)


loads = st.builds(
    SourceLoad,
    st.just("queue emails"),
    st.none() | st.integers(0, 10**7),
    st.none() | st.floats(0, 10**6),
    st.none() | st.floats(0.001, 10**5),
    st.none() | st.integers(1, 50),
)


class TestOneSource:
    def test_as_many_as_drain_it_within_the_target(self) -> None:
        found = wanted_processes(load(1_000, each_per_s=20.0), RULES, running=1)
        assert (found.count, found.drain_s) == (5, 50.0)
        assert "1,000 waiting" in found.reason
        assert "5 processes would drain it within 10 s" in found.reason

    def test_the_reason_names_the_bound(self) -> None:
        assert "the maximum is 8" in wanted_processes(load(10**6, each_per_s=20.0), RULES, 1).reason
        found = wanted_processes(load(10**6, each_per_s=20.0, cap=3), RULES, 1)
        assert found.count == 3
        assert "it has 3 partitions" in found.reason
        assert "the minimum is 1" in wanted_processes(load(0), RULES, 4).reason

    def test_partitions_come_before_the_minimum(self) -> None:
        assert wanted_processes(load(10, cap=2), ScaleRules(5, 8), 2).count == 2

    def test_without_a_rate_an_old_message_doubles_the_processes(self) -> None:
        assert wanted_processes(load(100, oldest_s=11.0), RULES, 2).count == 4
        assert wanted_processes(load(100, oldest_s=9.0), RULES, 2).count == 2
        assert wanted_processes(load(3, oldest_s=11.0), RULES, 2).count == 3, "no more than there are messages"
        assert wanted_processes(load(1, oldest_s=None), ScaleRules(0, 8), 0).count == 1, "it wakes up"

    def test_none_is_stopped_while_messages_are_late(self) -> None:
        late = load(100, oldest_s=60.0, each_per_s=20.0)
        assert wanted_processes(late, RULES, 4).count == 4
        assert wanted_processes(replace(late, waiting=20), RULES, 4).count == 1, "it is drained within a second"

    def test_an_unknown_backlog_changes_nothing(self) -> None:
        assert wanted_processes(load(None), RULES, 5).count == 5

    @given(loads, rules(), st.none() | st.integers(0, 40))
    def test_bounded(self, source: SourceLoad, given_rules: ScaleRules, running: int | None) -> None:
        found = wanted_processes(source, given_rules, running)
        top = given_rules.maximum if source.cap is None else min(given_rules.maximum, source.cap)
        assert min(given_rules.minimum, top) <= found.count <= top
        assert found.reason

    @given(loads, rules(), st.none() | st.integers(0, 40), st.integers(0, 10**7))
    def test_more_messages_never_want_fewer(
        self, source: SourceLoad, given_rules: ScaleRules, running: int | None, more: int
    ) -> None:
        fewer = replace(source, waiting=source.waiting or 0)
        larger = replace(source, waiting=(source.waiting or 0) + more)
        less, most = (wanted_processes(each, given_rules, running).count for each in (fewer, larger))
        assert less <= most


class TestPool:
    def test_up_at_once_and_down_after_the_cooldown(self) -> None:
        scaler = PoolScaler(RULES, 0.0)
        assert scaler.decide([load(0)], 1, 0.0).count == 1
        assert scaler.decide([load(1_000, each_per_s=20.0)], 1, 1.0).count == 5
        held = scaler.decide([load(0)], 5, 2.0)
        assert held.count == 5
        assert "cooldown of 30 s" in held.reason
        assert scaler.decide([load(0)], 5, 30.5).count == 5
        assert scaler.decide([load(0)], 5, 31.5).count == 1

    def test_the_most_of_all_sources(self) -> None:
        scaler = PoolScaler(RULES, 0.0)
        orders = SourceLoad("group billing", 10**6, None, 1.0, cap=2)
        found = scaler.decide([orders, load(600, each_per_s=20.0)], 1, 1.0)
        assert found.count == 3
        assert "queue emails" in found.reason

    @given(st.lists(st.tuples(st.floats(0.1, 20), loads), max_size=60), rules())
    def test_nothing_is_stopped_within_the_cooldown_of_a_start(
        self, samples: list[tuple[float, SourceLoad]], given_rules: ScaleRules
    ) -> None:
        scaler, running, now_s, raised_s = PoolScaler(given_rules, 0.0), given_rules.minimum, 0.0, 0.0
        for passed_s, source in samples:
            now_s += passed_s
            count = scaler.decide([source], running, now_s).count
            if count > running:
                raised_s = now_s
            if count < running:
                assert now_s - raised_s >= given_rules.cooldown_s
            running = count

    @given(loads, rules())
    def test_a_steady_load_settles(self, source: SourceLoad, given_rules: ScaleRules) -> None:
        scaler, running, counts = PoolScaler(given_rules, 0.0), given_rules.minimum, []
        for second in range(200):
            running = scaler.decide([source], running, float(second)).count
            counts.append(running)
        assert len(set(counts[-31:])) == 1


class TestRate:
    def test_idle_processes_are_not_slow(self) -> None:
        rate = ProcessRate()
        assert rate.per_s is None
        rate.note(100, processes=2, passed_s=1.0, is_busy=True)
        rate.note(0, processes=2, passed_s=60.0, is_busy=False)
        assert rate.per_s == pytest.approx(50)

    def test_follows_a_change(self) -> None:
        rate = ProcessRate()
        for _ in range(10):
            rate.note(100, 1, 1.0, is_busy=True)
        for _ in range(60):
            rate.note(10, 1, 1.0, is_busy=True)
        assert rate.per_s == pytest.approx(10, rel=0.2)
