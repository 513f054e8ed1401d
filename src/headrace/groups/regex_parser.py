"""From the text of a regular expression to an automaton without backtracking; see `patterns.py` for what it may say."""

from collections.abc import Callable, Iterable
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits, hexdigits, punctuation

from headrace.model.errors import InvalidRegularExpression

MAX_LENGTH = 1_000
MAX_COUNT = 1_000
MAX_STATES = 1_000
MAX_DEPTH = 50

Test = Callable[[str], bool]

_WORD = frozenset(ascii_letters + digits + "_")
_SPACE = frozenset("\t\n\f\r ")
_ESCAPED_CLASSES = {"d": frozenset(digits), "w": _WORD, "s": _SPACE}
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_POSIX = {
    "alnum": frozenset(ascii_letters + digits),
    "alpha": frozenset(ascii_letters),
    "digit": frozenset(digits),
    "lower": frozenset(ascii_lowercase),
    "punct": frozenset(punctuation),
    "space": _SPACE | {"\v"},
    "upper": frozenset(ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(hexdigits),
}
_AT_START, _AT_END = 1, 2


class Automaton:
    """States with edges that need a character, edges that need none, and edges that need a border of the text."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self._tests: list[Test | None] = []
        self._next: list[int] = []
        self._free: list[list[int]] = []
        self._border: list[int] = []

    def state(self, test: Test | None = None, following: int = -1, *, border: int = 0) -> int:
        if len(self._tests) >= MAX_STATES:
            raise InvalidRegularExpression(f"a topic pattern is too complex: it needs more than {MAX_STATES} states")
        self._tests.append(test)
        self._next.append(following)
        self._free.append([])
        self._border.append(border)
        return len(self._tests) - 1

    def link(self, state: int, following: int) -> None:
        """An edge that needs no character."""
        self._free[state].append(following)

    def closure(self, states: Iterable[int], *, at_start: bool = False, at_end: bool = False) -> frozenset[int]:
        """Everything reachable without a character. Edges from a border state can be taken at that border only."""
        waiting = list(states)
        reached = set(waiting)
        while waiting:
            state = waiting.pop()
            border = self._border[state]
            if (border == _AT_START and not at_start) or (border == _AT_END and not at_end):
                continue
            for following in self._free[state]:
                if following not in reached:
                    reached.add(following)
                    waiting.append(following)
        return frozenset(reached)

    def step(self, states: frozenset[int], character: str) -> frozenset[int]:
        tests = self._tests
        return self.closure(
            self._next[state] for state in states if (test := tests[state]) is not None and test(character)
        )

    def accepts(self, states: frozenset[int], *, at_start: bool) -> bool:
        """Whether the text may end here; `at_start` if it is empty."""
        return self.end in self.closure(states, at_start=at_start, at_end=True)


Piece = tuple[int, int]
"""The first and the last state of a part of the automaton."""


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._ignore_case = False
        self._automaton = Automaton()

    def parse(self) -> Automaton:
        self._flags()
        first, last = self._alternatives()
        if self._at < len(self._text):
            raise self._wrong("has a ) that nothing opened")
        self._automaton.start, self._automaton.end = first, last
        return self._automaton

    # -- what stands where

    def _flags(self) -> None:
        while self._text.startswith(("(?i)", "(?s)", "(?is)", "(?si)"), self._at):
            end = self._text.index(")", self._at)
            self._ignore_case |= "i" in self._text[self._at : end]
            self._at = end + 1

    def _alternatives(self) -> Piece:
        first, last = self._sequence()
        if self._peek() != "|":
            return first, last
        automaton = self._automaton
        fork, join = automaton.state(), automaton.state()
        automaton.link(fork, first)
        automaton.link(last, join)
        while self._peek() == "|":
            self._at += 1
            first, last = self._sequence()
            automaton.link(fork, first)
            automaton.link(last, join)
        return fork, join

    def _sequence(self) -> Piece:
        first = last = self._automaton.state()
        while self._peek() not in ("", "|", ")"):
            begin, end = self._repeated()
            self._automaton.link(last, begin)
            last = end
        return first, last

    def _repeated(self) -> Piece:
        begin_at = self._at
        piece = self._atom()
        end_at = self._at
        count = self._quantifier()
        if count is None:
            return piece
        if self._peek() == "?":
            self._at += 1
        after_at = self._at
        if self._quantifier() is not None:
            raise self._wrong("repeats a repetition: put the inner one into ( )")
        self._at = after_at
        low, high = count
        result = self._copies(begin_at, end_at, piece, low, high)
        self._at = after_at
        return result

    def _copies(self, begin_at: int, end_at: int, piece: Piece, low: int, high: int | None) -> Piece:
        """`piece`, which the text from `begin_at` to `end_at` stands for, `low` to `high` times."""
        automaton = self._automaton
        first = last = automaton.state()
        unused: Piece | None = piece

        def another() -> Piece:
            nonlocal unused
            if unused is not None:
                made, unused = unused, None
                return made
            self._at = begin_at
            made = self._atom()
            assert self._at == end_at
            return made

        for _ in range(low):
            begin, end = another()
            automaton.link(last, begin)
            last = end
        if high is None:
            begin, end = another()
            loop = automaton.state()
            automaton.link(last, loop)
            automaton.link(loop, begin)
            automaton.link(end, loop)
            return first, loop
        out = automaton.state()
        for _ in range(high - low):
            automaton.link(last, out)
            begin, end = another()
            automaton.link(last, begin)
            last = end
        automaton.link(last, out)
        return first, out

    def _quantifier(self) -> tuple[int, int | None] | None:
        character = self._peek()
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(character)
        if simple is not None:
            self._at += 1
            return simple
        if character != "{":
            return None
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : end].partition(",") if end > 0 else ("", "", "")
        if not low.isdecimal() or not (high.isdecimal() or not high):
            return None
        self._at = end + 1
        least = int(low)
        most = int(high) if high else None if comma else least
        if least > MAX_COUNT or (most or 0) > MAX_COUNT or (most is not None and most < least):
            raise self._wrong(f"has a count that is backwards or above {MAX_COUNT}")
        return least, most

    def _atom(self) -> Piece:
        character = self._take()
        if character == "(":
            return self._group()
        if character == "[":
            return self._one(self._class())
        if character == ".":
            return self._one(lambda one: one != "\n")
        if character == "^":
            return self._at_border(_AT_START)
        if character == "$":
            return self._at_border(_AT_END)
        if character == "\\":
            return self._escape()
        if character in "*+?":
            raise self._wrong(f"has a {character} with nothing in front of it to repeat")
        return self._one(self._among({character}))

    def _group(self) -> Piece:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._wrong(f"has groups more than {MAX_DEPTH} deep")
        if self._peek() == "?":
            self._group_kind()
        piece = self._alternatives()
        if self._peek() != ")":
            raise self._wrong("has a ( that is not closed")
        self._at += 1
        self._depth -= 1
        return piece

    def _group_kind(self) -> None:
        rest = self._text[self._at :]
        if rest.startswith("?:"):
            self._at += 2
            return
        name, closed, _ = rest.removeprefix("?P<").removeprefix("?<").partition(">")
        if rest.startswith(("?P<", "?<")) and closed and name and set(name) <= _WORD:
            self._at = self._text.index(">", self._at) + 1
            return
        raise self._wrong("uses (? for something other than (?: ), (?P<name> ), or (?i) in front")

    def _escape(self) -> Piece:
        character = self._take("ends in a \\")
        if character == "A":
            return self._at_border(_AT_START)
        if character == "z":
            return self._at_border(_AT_END)
        if character.lower() in _ESCAPED_CLASSES:
            return self._one(self._escaped_class(character))
        return self._one(self._among({self._escaped(character)}))

    def _class(self) -> Test:
        negated = self._peek() == "^"
        self._at += negated
        members: set[str] = set()
        ranges: list[tuple[str, str]] = []
        tests: list[Test] = []
        first = True
        while (character := self._take("has a [ that is not closed")) != "]" or first:
            first = False
            if character == "[" and self._peek() == ":":
                members |= self._posix()
                continue
            if character == "\\":
                character = self._take("ends in a \\")
                if character.lower() in _ESCAPED_CLASSES:
                    tests.append(self._escaped_class(character))
                    continue
                character = self._escaped(character)
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                end = self._take()
                if end == "\\":
                    end = self._escaped(self._take("ends in a \\"))
                if end < character:
                    raise self._wrong(f"has the range {character}-{end}, which is backwards")
                ranges.append((character, end))
            else:
                members.add(character)

        def is_in(one: str) -> bool:
            return one in members or any(a <= one <= z for a, z in ranges) or any(test(one) for test in tests)

        def test(one: str) -> bool:
            found = is_in(one) or (self._ignore_case and (is_in(one.lower()) or is_in(one.upper())))
            return found is not negated

        return test

    def _posix(self) -> frozenset[str]:
        end = self._text.find(":]", self._at)
        known = _POSIX.get(self._text[self._at + 1 : end]) if end > 0 else None
        if known is None:
            raise self._wrong("names a class [: :] that does not exist")
        self._at = end + 2
        return known

    @staticmethod
    def _escaped_class(character: str) -> Test:
        members = _ESCAPED_CLASSES[character.lower()]
        return (lambda one: one not in members) if character.isupper() else (lambda one: one in members)

    def _escaped(self, character: str) -> str:
        if character in _ESCAPED:
            return _ESCAPED[character]
        if character in ascii_letters or character in digits:
            raise self._wrong(f"has \\{character}, which topic patterns do not know")
        return character

    # -- making states

    def _among(self, members: set[str]) -> Test:
        if self._ignore_case:
            members = {form for one in members for form in (one.lower(), one.upper())}
        return members.__contains__

    def _one(self, test: Test) -> Piece:
        end = self._automaton.state()
        return self._automaton.state(test, end), end

    def _at_border(self, border: int) -> Piece:
        state, end = self._automaton.state(border=border), self._automaton.state()
        self._automaton.link(state, end)
        return state, end

    # -- reading

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, otherwise: str = "ends too early") -> str:
        character = self._peek()
        if not character:
            raise self._wrong(otherwise)
        self._at += 1
        return character

    def _wrong(self, what: str) -> InvalidRegularExpression:
        return InvalidRegularExpression(f"the topic pattern {self._text!r} {what} (at character {self._at})")


def compile_pattern(text: str) -> Automaton:
    if len(text) > MAX_LENGTH:
        raise InvalidRegularExpression(f"a topic pattern has {len(text)} characters: {MAX_LENGTH} are allowed")
    return _Parser(text).parse()
