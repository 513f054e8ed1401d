"""Rules either are refused in words or decide about every name; simple ones decide as Python's `re` does."""

import re
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from headrace.model.errors import SettingsError
from headrace.security.tls.principal_rules import PrincipalRules

NAMES = st.text("CN=abAB,/$\\ü ", max_size=20)
PATTERNS = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "CN=", ","]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        inner.map(lambda each: f"({each})"),
        inner.map(lambda each: f"(?:{each})*"),
        st.tuples(inner, inner).map("|".join).map(lambda each: f"({each})"),
    ),
    max_leaves=6,
)
WORDS = st.text("abAB", max_size=3)
CASES = st.sampled_from(["", "L", "U"])


@given(st.text("RULE:DEFAULT/\\$1(),. LU", max_size=30), NAMES)
def test_any_text_is_refused_in_words_or_decides(text, name):
    with suppress(SettingsError):
        assert PrincipalRules(text).user_name(name) != ""


@given(PATTERNS, WORDS, CASES, NAMES)
def test_a_rule_decides_as_a_regular_expression_does(pattern, word, case, name):
    groups = re.compile(pattern).groups
    replacement = "".join(f"{word}${group}" for group in range(groups + 1))
    match = re.fullmatch(pattern, name)
    expected = None if match is None else "".join(f"{word}{match[group] or ''}" for group in range(groups + 1))
    if expected is not None and case:
        expected = expected.lower() if case == "L" else expected.upper()
    assert PrincipalRules(f"RULE:{pattern}/{replacement}/{case}").user_name(name) == (expected or None)


@given(st.lists(st.tuples(WORDS.filter(bool), WORDS.filter(bool)), max_size=4), WORDS.filter(bool))
def test_the_first_rule_that_matches_decides(pairs, name):
    text = ",".join([*(f"RULE:{pattern}/{user}/" for pattern, user in pairs), "DEFAULT"])
    expected = next((user for pattern, user in pairs if pattern == name), name)
    assert PrincipalRules(text).user_name(name) == expected


@given(st.text(st.characters(min_codepoint=1, max_codepoint=0x2FF), max_size=30))
def test_any_name_is_found_by_its_own_literal_pattern(name):
    pattern = re.sub(r"([^A-Za-z0-9\u0080-\u02ff])", lambda found: f"\\x{{{ord(found[1]):x}}}", name)
    assert PrincipalRules(f"RULE:{pattern}/user/").user_name(name) == "user"
