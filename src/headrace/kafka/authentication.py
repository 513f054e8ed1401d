"""The SASL state of one connection: which requests are answered before, during and after a client has authenticated.

    HANDSHAKE ──SaslHandshake──► EXCHANGE ──tokens──► DONE ──SaslHandshake──► EXCHANGE (again, KIP-368)
        │                            │                  │
        └────────────────────────────┴──────────────────┴──► FAILED, and the connection is closed

Before the first DONE only ApiVersions, SaslHandshake and SaslAuthenticate are answered. After a handshake of version 0
the client sends tokens without Kafka's framing of requests. A client that authenticates again must use the same
mechanism and be the same principal. Past the end of its session it may do nothing else.
"""

from collections.abc import Callable
from enum import IntEnum, auto

from headrace.protocol.codec import API_VERSIONS_KEY
from headrace.security.sasl.mechanism import Answer, Authenticated, Exchange, Rejected
from headrace.security.sasl.mechanisms import Mechanisms

SASL_HANDSHAKE_KEY = 17
SASL_AUTHENTICATE_KEY = 36
_BEFORE = frozenset({API_VERSIONS_KEY, SASL_HANDSHAKE_KEY, SASL_AUTHENTICATE_KEY})


class Stage(IntEnum):
    HANDSHAKE = auto()
    """Nothing is known of the client; it is to choose a mechanism."""
    EXCHANGE = auto()
    DONE = auto()
    FAILED = auto()


class Authentication:
    __slots__ = (
        "_exchange",
        "_max_reauth_ms",
        "_mechanisms",
        "_wall_ms",
        "enabled",
        "expires_at_ms",
        "failure",
        "has_authenticated",
        "mechanism",
        "principal",
        "session_lifetime_ms",
        "stage",
        "takes_raw_tokens",
    )

    def __init__(
        self, mechanisms: Mechanisms, enabled: tuple[str, ...], *, max_reauth_ms: int, wall_ms: Callable[[], int]
    ) -> None:
        """`enabled` are the mechanisms of the listener. With `max_reauth_ms` above 0, a session ends after so long."""
        self._mechanisms = mechanisms
        self._max_reauth_ms = max_reauth_ms
        self._wall_ms = wall_ms
        self._exchange: Exchange | None = None
        self.enabled = enabled
        self.stage = Stage.HANDSHAKE
        self.has_authenticated = False
        """True once the client has authenticated; it stays true while it does so again."""
        self.mechanism = ""
        self.principal = ""
        self.takes_raw_tokens = False
        """True if the next frame is a token, and no request."""
        self.expires_at_ms: int | None = None
        self.session_lifetime_ms = 0
        self.failure = ""
        """Why it failed, for the log; never shown to the client."""

    def why_not(self, api_key: int) -> str | None:
        """Why a request must not be answered, as the end of a sentence about the client; None if it may."""
        if self.stage is Stage.FAILED:
            return self.failure
        if api_key in _BEFORE:
            return None
        if not self.has_authenticated:
            return "sent a request before it had authenticated"
        if self.expires_at_ms is not None and self._wall_ms() > self.expires_at_ms:
            return "did not authenticate again before its session ended"
        return None

    def permits(self, api_key: int) -> bool:
        """Whether the next frame may be a request of this API."""
        return not self.takes_raw_tokens and self.why_not(api_key) is None

    def begin(self, mechanism: str, *, with_raw_tokens: bool) -> bool:
        """Begin an exchange with the mechanism that the client has chosen; False if that is not possible."""
        is_same = not self.has_authenticated or mechanism == self.mechanism
        exchange = self._mechanisms.begin(mechanism) if mechanism in self.enabled and is_same else None
        if self.stage not in (Stage.HANDSHAKE, Stage.DONE) or exchange is None:
            self.fail("sent a SaslHandshake in the middle of an exchange, or for another mechanism than before")
            return False
        self._exchange = exchange
        self.mechanism = mechanism
        self.takes_raw_tokens = with_raw_tokens
        self.stage = Stage.EXCHANGE
        return True

    @property
    def is_in_exchange(self) -> bool:
        return self.stage is Stage.EXCHANGE

    def is_slow(self, token: bytes) -> bool:
        """Whether `step` takes milliseconds of computing, and is to be called in a thread."""
        return self._exchange is not None and self._exchange.is_slow(token)

    def step(self, token: bytes) -> Answer:
        """The answer to a token. May run in a thread: nothing but `settle` changes the state of the connection."""
        if self._exchange is None:
            return Rejected("a token came without a handshake")
        return self._exchange.step(token)

    def settle(self, answer: Answer) -> Answer:
        """Take note of an answer of `step`; it may turn into a rejection."""
        if isinstance(answer, Authenticated):
            if self.has_authenticated and answer.principal != self.principal:
                answer = Rejected(f"authenticated again as {answer.principal} instead of {self.principal}")
            else:
                self._done(answer)
        if isinstance(answer, Rejected):
            self.fail(f"failed to authenticate with {self.mechanism}: {answer.reason_for_log}")
        return answer

    def fail(self, reason: str) -> None:
        """End the authentication; the reason is the end of a sentence about the client."""
        self.stage = Stage.FAILED
        self.failure = reason
        self._exchange = None
        self.takes_raw_tokens = False

    def _done(self, answer: Authenticated) -> None:
        now_ms = self._wall_ms()
        ends = [answer.expires_at_ms] if answer.expires_at_ms is not None else []
        if self._max_reauth_ms:
            ends.append(now_ms + self._max_reauth_ms)
        self.expires_at_ms = min(ends, default=None)
        self.session_lifetime_ms = 0 if self.expires_at_ms is None else max(1, self.expires_at_ms - now_ms)
        self.principal = answer.principal
        self.has_authenticated = True
        self.takes_raw_tokens = False
        self._exchange = None
        self.stage = Stage.DONE
