"""The connections that have not authenticated yet, bounded per broker and per address. Pure.

A connection is pending from its accept until its client has authenticated: during the TLS handshake, then during the
SASL exchange. Past a bound the oldest one is closed in favour of the new one. A client authenticates within
milliseconds, so it gets through while a flood of connections that send nothing closes its own.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

C = TypeVar("C", bound=Hashable)


class PendingConnections(Generic[C]):
    """The pending connections, oldest first."""

    def __init__(self, most: int, most_per_address: int) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._addresses: dict[C, str] = {}
        self._by_address: dict[str, dict[C, None]] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def add(self, connection: C, address: str) -> C | None:
        """Add a connection; the one that the caller must close for it, which is pending no longer, or None."""
        own = self._by_address.setdefault(address, {})
        own[connection] = None
        self._addresses[connection] = address
        if len(own) > self._most_per_address:
            return self._remove(next(iter(own)))
        if len(self._addresses) > self._most:
            return self._remove(next(iter(self._addresses)))
        return None

    def discard(self, connection: C) -> None:
        """Remove a connection that has authenticated or is closed; a no-op for any other."""
        if connection in self._addresses:
            self._remove(connection)

    def _remove(self, connection: C) -> C:
        address = self._addresses.pop(connection)
        own = self._by_address[address]
        del own[connection]
        if not own:
            del self._by_address[address]
        return connection
