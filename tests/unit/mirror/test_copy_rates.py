"""How fast a link copies, from what was copied between two looks."""

from headrace.mirror.copy_rates import CopyRates


def test_a_rate_is_known_from_the_second_look_on() -> None:
    rates = CopyRates()
    assert rates.note("eu", 1_000, 0) is None
    assert rates.note("eu", 3_000, 1_000) == 2_000
    assert rates.note("us", 0, 1_000) is None
    # The window moves on: what was copied before no longer counts.
    rates.note("eu", 10_000, 10_000)
    assert rates.note("eu", 10_000, 15_000) == 0


def test_other_leaders_and_long_pauses_begin_again() -> None:
    rates = CopyRates()
    rates.note("eu", 1_000, 0)
    assert rates.note("eu", 10, 1_000) is None
    assert rates.note("eu", 1_010, 2_000) == 1_000
    assert rates.note("eu", 9_000, 200_000) is None
    rates.keep(frozenset({"us"}))
    assert rates.note("eu", 9_001, 201_000) is None
