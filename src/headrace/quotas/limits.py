"""Which quota applies to a client, by Kafka's order of precedence. Pure.

For each kind of quota the first of these that exists applies:

     1  user and client id              5  default user and client id         9  client id
     2  user and prefix                 6  default user and prefix           10  prefix
     3  user and default client id      7  default user, default client id   11  default client id
     4  user                            8  default user

Those without a prefix are Kafka's eight levels, in its order. A prefix of the client id stands right behind the exact
client id; of several the longest applies. A default is a separate quota for each client that it applies to; all clients
of a prefix share theirs, within each user where the quota names a user.
"""

from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from headrace.model.quotas import (
    ACCESS_KEY,
    CLIENT_ID,
    CLIENT_ID_PREFIX,
    IP,
    QUEUE,
    TOPIC_PREFIX,
    USER,
    ClusterQuotas,
    QuotaKind,
)


class AccountName(NamedTuple):
    """Whose use is counted together: that of a user, of a client id, of both, or of a prefix."""

    user: str = ""
    """Empty: whatever the user."""
    client_id: str = ""
    """Empty: whatever the client id."""
    is_prefix: bool = False

    def __str__(self) -> str:
        parts = [f"user {self.user}"] if self.user else []
        if self.client_id:
            parts.append(f"client-id{'-prefix' if self.is_prefix else ''} {self.client_id}")
        return ", ".join(parts)


class QuotaLimit(NamedTuple):
    bound: float
    account: AccountName


_Name = tuple[bool, str | None]
"""Whether an entity has a name of a type, and the name; None is the default."""
_ABSENT: _Name = (False, None)
_DEFAULT: _Name = (True, None)


def _plain_address(address: str) -> str:
    """An address in its shortest form; one of IPv4 never as one of IPv6, as in Java."""
    parsed = ip_address(address)
    return str((parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None) or parsed)


class QuotaTable:
    """The quotas of the cluster, arranged for look-up."""

    def __init__(self, quotas: ClusterQuotas) -> None:
        self._bounds: dict[str, dict[tuple[_Name, _Name], float]] = {}
        self._prefix_bounds: dict[str, dict[tuple[_Name, str], float]] = {}
        self._prefixes: tuple[str, ...] = ()
        """The prefixes of client ids, longest first."""
        self._by_ip: dict[str, float] = {}
        self._any_ip: float | None = None
        prefixes: set[str] = set()
        for entity, values in quotas.items():
            names = dict(entity)
            if IP in names:
                self._add_ip(names[IP], values.get(QuotaKind.CONNECTION))
                continue
            if QUEUE in names or ACCESS_KEY in names or TOPIC_PREFIX in names:
                continue
            user: _Name = (True, names[USER]) if USER in names else _ABSENT
            prefix = names.get(CLIENT_ID_PREFIX)
            client_id: _Name = (True, names[CLIENT_ID]) if CLIENT_ID in names else _ABSENT
            for kind, bound in values.items():
                if prefix is not None:
                    prefixes.add(prefix)
                    self._prefix_bounds.setdefault(kind, {})[user, prefix] = bound
                else:
                    self._bounds.setdefault(kind, {})[user, client_id] = bound
        self._prefixes = tuple(sorted(prefixes, key=len, reverse=True))

    def _add_ip(self, address: str | None, bound: float | None) -> None:
        if bound is None:
            return
        if address is None:
            self._any_ip = bound
        else:
            self._by_ip[_plain_address(address)] = bound

    @property
    def limits_clients(self) -> bool:
        """Whether any quota is for users or client ids."""
        return bool(self._bounds or self._prefix_bounds)

    @property
    def limits_time(self) -> bool:
        """Whether any quota is for the time of requests."""
        return QuotaKind.REQUEST in self._bounds or QuotaKind.REQUEST in self._prefix_bounds

    @property
    def limits_addresses(self) -> bool:
        return bool(self._by_ip) or self._any_ip is not None

    def connections_per_s(self, address: str) -> float | None:
        """How many connections an address may open each second; None if there is no quota for it."""
        return self._by_ip.get(address, self._any_ip)

    def limit(self, kind: QuotaKind, user: str, client_id: str) -> QuotaLimit | None:
        """The quota that applies to a client; None if there is none."""
        if kind not in self._bounds and kind not in self._prefix_bounds:
            return None
        return next(self._matching(kind, user, client_id), None)

    def _matching(self, kind: QuotaKind, user: str, client_id: str) -> Iterator[QuotaLimit]:
        """Every quota that matches, in the order of precedence."""
        bounds, prefix_bounds = self._bounds.get(kind, {}), self._prefix_bounds.get(kind, {})
        prefixes = [each for each in self._prefixes if client_id.startswith(each)] if prefix_bounds else []
        by_user: tuple[_Name, ...] = ((True, user), _DEFAULT, _ABSENT)
        for named_user in by_user:
            whose = "" if named_user is _ABSENT else user
            exact = bounds.get((named_user, (True, client_id)))
            if exact is not None:
                yield QuotaLimit(exact, AccountName(whose, client_id))
            for prefix in prefixes:
                shared = prefix_bounds.get((named_user, prefix))
                if shared is not None:
                    yield QuotaLimit(shared, AccountName(whose, prefix, is_prefix=True))
            for_others = bounds.get((named_user, _DEFAULT))
            if for_others is not None:
                yield QuotaLimit(for_others, AccountName(whose, client_id))
            for_user = bounds.get((named_user, _ABSENT)) if whose else None
            if for_user is not None:
                yield QuotaLimit(for_user, AccountName(whose))
