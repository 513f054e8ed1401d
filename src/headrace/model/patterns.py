"""Regular expressions for topic names and transactional ids, in RE2's syntax, matched in linear time.

Kafka matches `SubscribedTopicRegex` with RE2/J, which has no backtracking: a client's pattern cannot stall the broker.
Headrace uses RE2 itself (`docs/adr/0015-re2-for-patterns.md`). A pattern must match the whole name.

Limits: 1,000 characters, and 1 MiB of memory for a pattern and the states that matching adds to it. 128 patterns are
cached, as many as in RE2's own cache. `InvalidRegularExpression` has the reason why a pattern is not valid, or that it
needs more memory.
"""

from functools import lru_cache

from headrace.model.errors import InvalidRegularExpression

MAX_LENGTH = 1_000
MAX_BYTES = 1024 * 1024
_CACHED_PATTERNS = 128


class TopicPattern:
    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise InvalidRegularExpression(f"a topic pattern has {len(text)} characters: {MAX_LENGTH} are allowed")
        import re2  # the SDK without the broker has no RE2, and no patterns

        options = re2.Options()
        options.max_mem = MAX_BYTES
        options.log_errors = False
        options.never_capture = True
        try:
            self._fullmatch = re2.compile(text.encode(), options).fullmatch
        except re2.error as error:
            reason = error.args[0].decode()
            raise InvalidRegularExpression(f"the topic pattern {text!r} is not valid: {reason}") from error

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        return self._fullmatch(name.encode()) is not None


topic_pattern = lru_cache(_CACHED_PATTERNS)(TopicPattern)
"""Compiles a pattern, with a cache. Raises `InvalidRegularExpression`."""
