"""The first contact with a cluster over TLS or SASL: librdkafka retries a refused login for ever, this does not."""

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from headrace.client.errors import NotAuthenticated, Unreachable
from headrace.client.kafka.librdkafka import create_client, explain
from headrace.client.kafka.reachability import FirstContact

_SLICE_S = 0.2
_CALM = {"reconnect.backoff.ms": 100}
"""Few logins that fail, until the first of them is seen."""
_LOGIN_PATIENCE_S = 1.0
"""At least this long for handshakes and the login, after the port was found open."""
_REFUSED = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED)
_TLS_ALERT = "SSL alert number"
"""With TLS 1.3 a broker refuses a certificate after the handshake: librdkafka reports it as a broken connection."""
_HINTS = (
    ("alert certificate required", "it requires a certificate of the client: cert= and key="),
    (
        "broker certificate could not be verified",
        "its certificate is not from a trusted authority",
    ),
    ("unregistered mechanism", "it does not offer the mechanism"),
    ("Unsupported SASL mechanism", "it does not offer the mechanism"),
    ("connecting to a PLAINTEXT broker listener", "it expects no TLS on this port"),
    ("not valid in current SASL state", "it has no authentication on this port: leave out user, password and token"),
)


class SecureContact:
    """Logs in once, after an address was found open: `make` returns at once after the first success. Thread-safe."""

    def __init__(self, port: FirstContact, where: str, config: Callable[[], dict[str, Any]], timeout_s: float) -> None:
        self._port = port
        self._where = where
        self._config = config
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._is_made = False

    def make(self) -> None:
        """Raises `Unreachable` if no broker answers, and `NotAuthenticated` if one refuses us, or we it."""
        if self._is_made:
            return
        with self._lock:
            if not self._is_made:
                self._port.make()
                self._login()
                self._is_made = True

    def _login(self) -> None:
        errors: list[KafkaError] = []
        admin = create_client(AdminClient, self._config() | {"error_cb": errors.append, **_CALM})
        give_up_at_s = time.monotonic() + max(self._timeout_s, _LOGIN_PATIENCE_S)
        while True:
            try:
                admin.list_topics(timeout=_SLICE_S)
            except KafkaException as failure:
                error = failure.args[0]
            else:
                return
            admin.poll(0)
            for each in (*errors, error):
                if each.code() in _REFUSED or _TLS_ALERT in str(each.str()):
                    raise NotAuthenticated(f"no connection to {self._where}: {_words(each)}")
            if time.monotonic() > give_up_at_s:
                raise Unreachable(
                    f"{explain(error, self._where)} over {self._config()['security.protocol']}; does the port expect "
                    "that, or something else (tls=, user=)?"
                )


def _words(error: KafkaError) -> str:
    """The reason without the address, the thread and the state of librdkafka."""
    text = str(error.str())
    for sign, words in _HINTS:
        if sign in text:
            return words
    for prefix in ("SASL authentication error: ", "SSL handshake failed: ", "SSL routines::"):
        if prefix in text:
            text = text.partition(prefix)[2]
    return text.partition(" (after ")[0]
