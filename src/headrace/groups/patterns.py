"""Regular expressions for topic names, matched in linear time: a client's pattern can never stall the broker. Pure.

Kafka matches `SubscribedTopicRegex` with RE2, which has no backtracking; neither has this. A pattern becomes a
non-deterministic automaton, and the sets of states that it can be in are remembered as a deterministic one while names
are matched. A name matches if the whole of it does.

What is understood (RE2's syntax, as far as it concerns topic names): literals, `.`, classes `[a-z]` `[^a-z]`
`[[:alpha:]]`, `\\d \\w \\s` and their opposites, escapes, groups `( )` `(?: )` `(?P<name> )` `(?<name> )`, `|`,
`* + ? {n} {n,} {n,m}` (lazy forms mean the same here), `^ $ \\A \\z`, `(?i)` and `(?s)` in front. Not understood, as in
RE2: back references and looking ahead or behind. Not understood, unlike in RE2: `\\b`, `\\p{…}`, `\\Q…\\E` and flags
elsewhere than in front: `InvalidRegularExpression`.

Limits: 1,000 characters, counts up to 1,000, 1,000 states, groups 50 deep.
"""

from functools import lru_cache

from headrace.groups.regex_parser import Automaton, compile_pattern

_CACHED_PATTERNS = 1_000
_REMEMBERED_SETS = 2_000


class TopicPattern:
    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._start = automaton.closure([automaton.start], at_start=True)
        self._known: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        states, known = self._start, self._known
        for character in name:
            step = (states, character)
            following = known.get(step)
            if following is None:
                following = self._automaton.step(states, character)
                if len(known) >= _REMEMBERED_SETS:
                    known.clear()
                known[step] = following
            states = following
            if not states:
                return False
        return self._automaton.accepts(states, at_start=not name)


@lru_cache(_CACHED_PATTERNS)
def topic_pattern(text: str) -> TopicPattern:
    """The pattern that `text` stands for; `InvalidRegularExpression` says what is wrong with it."""
    return TopicPattern(compile_pattern(text))
