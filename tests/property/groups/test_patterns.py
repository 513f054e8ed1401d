"""Topic patterns: the same as Python's own where they mean the same, and never slow."""

import re
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.patterns import topic_pattern
from headrace.model.errors import InvalidRegularExpression

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
     "(?#x)", r"\b", r"\pL", "[b-a]", "[[:no:]]", "x" * 1001, "(" * 60 + ")" * 60, "((a{100}){100})", "a|(?i)b"],
)  # fmt: skip
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        topic_pattern(text)


@pytest.mark.parametrize(
    "text", ["(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*a){20}b", "((a?){30})a{30}b", "(.*)(.*)(.*)(.*)b"]
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
    ],
)
def test_the_whole_name_must_match(text: str, name: str, expected: bool) -> None:
    assert topic_pattern(text).matches(name) is expected
