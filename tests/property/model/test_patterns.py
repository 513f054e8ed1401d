"""Topic patterns: the same as Python's own where they mean the same, and never slow."""

import re
from mmap import PAGESIZE
from pathlib import Path
from random import Random
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.errors import InvalidRegularExpression
from headrace.model.patterns import MAX_BYTES, topic_pattern

_atoms = st.sampled_from(
    ["a", "b", "c", ".", "[ab]", "[^a]", "[a-c]", r"\.", r"\w", r"\d", "-", "_", "^", "$", "[]a]", "[a-]", r"[\w.]"]
)


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "+?", "{2}", "{0,2}", "{1,}", "{0}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda text: f"({text})"),
    )


patterns = st.recursive(_atoms, _combined, max_leaves=8)
names = st.text("abc.-_1", max_size=8)


@given(patterns, names)
def test_patterns_mean_what_they_mean_elsewhere(text: str, name: str) -> None:
    assert topic_pattern(text).matches(name) == (re.fullmatch(text, name) is not None)
    assert topic_pattern("(?i)" + text).matches(name.upper()) == (re.fullmatch("(?i)" + text, name.upper()) is not None)


@pytest.mark.parametrize(
    "text",
    ["(", ")", "a)", "[a", "*", "a**", "a{2}{3}", "a{5,2}", "a{2000}", "\\", r"(a)\1", "(?=a)", "(?!a)", "(?<=a)",
     "(?#x)", "{2}a", "[b-a]", "[[:no:]]", "x" * 1001, "((a{100}){100})"],
)  # fmt: skip
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        topic_pattern(text)


def test_a_refusal_says_what_is_wrong() -> None:
    with pytest.raises(InvalidRegularExpression, match=r"the topic pattern 'orders-\(' is not valid: missing \)"):
        topic_pattern("orders-(")


def test_a_pattern_that_needs_too_much_memory_is_refused() -> None:
    with pytest.raises(InvalidRegularExpression, match="pattern too large"):
        topic_pattern(r"\pL{900}")


def test_matching_stays_within_the_memory_of_a_pattern() -> None:
    """The automaton has 2¹⁵ states for these names, of which RE2 may keep as many as fit."""
    pattern = topic_pattern("(a|b)*a(a|b){14}c")
    random = Random(1)
    names = ["".join(random.choices("ab", k=249)) for _ in range(500)]
    before = _resident_bytes()
    assert not any(map(pattern.matches, names))
    assert _resident_bytes() - before < 4 * MAX_BYTES


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGESIZE


@pytest.mark.parametrize(
    "text", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*a){20}b", "((a?){30})a{30}b", "(.*)(.*)(.*)(.*)b", "(.{1,30}){30}b"]
)
def test_patterns_that_stall_others_are_fast(text: str) -> None:
    pattern = topic_pattern(text)
    began = process_time()
    for length in range(1, 249):
        assert not pattern.matches("a" * length)
    assert process_time() - began < 5


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("^orders.*", "orders-eu", True),
        ("^orders", "orders-eu", False),
        ("^a|^b.*", "bcd", True),
        ("(?P<area>eu|us)-.*", "eu-1", True),
        ("[[:alpha:]]+", "abc", True),
        ("[[:alpha:]]+", "ab1", False),
        ("", "", True),
        ("", "a", False),
        ("a{,2}", "a{,2}", True),
        (r"\Aab\z", "ab", True),
        ("a|(?i)b", "B", True),
        ("a|(?i)b", "A", False),
        (r"orders\b.*", "orders-eu", True),
        (r"orders\b.*", "orders_eu", False),
        (r"\Qorders.eu\E", "orders.eu", True),
        (r"\Qorders.eu\E", "orders-eu", False),
        (r"\pL+", "tönung", True),
    ],
)
def test_the_whole_name_must_match(text: str, name: str, expected: bool) -> None:
    assert topic_pattern(text).matches(name) is expected
