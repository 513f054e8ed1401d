"""Requests of Kafka's APIs, made for a person: the port that `kafka/forwarded_calls.py` implements."""

from typing import Any, Protocol

from headrace.security.subject import Subject


class KafkaCalls(Protocol):
    async def call(
        self, subject: Subject, request: Any, *, broker_id: int | None = None, client_id: str = ..., wait_s: float = 0
    ) -> Any:
        """The response entity to a kio request entity, as the subject would get it over a connection.

        `broker_id` is the broker to ask, None for this one. `wait_s` is how long the request itself may wait there.
        Raises `PeerUnavailable` if the broker does not answer, and `FeatureUpdateRefused` if it is too old.
        """
        ...
