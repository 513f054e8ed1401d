"""The Kafka listeners of a broker, each written as a URL:

    plain://127.0.0.1:9092
    sasl_tls://:9093?name=public&advertise=kafka.example.org:9093&client.auth=requested&sasl=SCRAM-SHA-512+PLAIN

The protocol says whether a connection is encrypted (`tls`) and whether a client logs in (`sasl`). Without options, the
listener's name is its protocol, and the rest is as the settings `advertise`, `tls.client.auth` and
`sasl.enabled.mechanisms` say. `max.connection.creation.rate` limits the connections of one listener.
"""

from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, unquote

from headrace.config.address import EVERY_ADDRESS, is_loopback, parse_address
from headrace.model.errors import SettingsError
from headrace.model.image import Endpoint

PROTOCOLS = ("plain", "tls", "sasl_plain", "sasl_tls")
CLIENT_AUTH = ("none", "requested", "required")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_CONNECTION_RATE = "max.connection.creation.rate"
_OPTIONS = ("name", "advertise", "client.auth", "sasl", _CONNECTION_RATE)
_KAFKA_PROTOCOLS = {"plaintext": "plain", "ssl": "tls", "sasl_plaintext": "sasl_plain", "sasl_ssl": "sasl_tls"}


@dataclass(frozen=True, slots=True)
class KafkaListener:
    """One address on which Kafka clients or other brokers connect, and how they authenticate there."""

    name: str
    protocol: str
    address: Endpoint
    """Where it listens; an empty host means every address, IPv4 and IPv6."""
    advertise: str = ""
    """HOST[:PORT] advertised to clients of this listener; empty: the address they connected to."""
    client_auth: str = "none"
    """Whether a TLS client must present a certificate: none, requested or required."""
    mechanisms: tuple[str, ...] = ()
    """The SASL mechanisms that are offered; empty unless it is a `sasl` listener."""
    connections_per_s: int | None = None
    """How many connections it accepts each second; None for no limit of its own."""

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("tls")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("sasl")

    @property
    def authenticates(self) -> bool:
        """True if only clients are served that have authenticated."""
        return self.uses_sasl or (self.uses_tls and self.client_auth == "required")

    @property
    def is_local(self) -> bool:
        """True if it can be reached from this machine only."""
        return self.address.host not in EVERY_ADDRESS and is_loopback(self.address.host)

    @property
    def kafka_protocol(self) -> str:
        """What Kafka calls its protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        return next(kafka for kafka, ours in _KAFKA_PROTOCOLS.items() if ours == self.protocol).upper()

    @property
    def kafka_name(self) -> str:
        """Its name as Kafka's tools write it; one without a name has that of its protocol."""
        return self.kafka_protocol if self.name == self.protocol else self.name.upper()

    def __str__(self) -> str:
        return f"{self.protocol}://{self.address}"


def parse_listener(text: str, *, client_auth: str, mechanisms: tuple[str, ...], advertise: str = "") -> KafkaListener:
    """Parse a listener; the other arguments are the values of options that it does not set. Raises `SettingsError`."""
    scheme, separator, rest = text.strip().partition("://")
    if not separator:
        raise SettingsError(f"{text!r} is not a listener: write PROTOCOL://HOST:PORT, for example tls://:9093")
    protocol = scheme.lower()
    if protocol not in PROTOCOLS:
        known = _KAFKA_PROTOCOLS.get(protocol)
        meant = f" (Kafka's {scheme} is {known})" if known else ""
        raise SettingsError(f"{text!r} has no known protocol: use {', '.join(PROTOCOLS)}{meant}")
    address_text, _, query = rest.partition("?")
    options = _options(text, query)
    listener = KafkaListener(
        options.get("name", protocol),
        protocol,
        parse_address(address_text),
        options.get("advertise", advertise),
        options.get("client.auth", client_auth),
        tuple(each.upper() for each in options["sasl"].split("+")) if "sasl" in options else mechanisms,
        _connection_rate(text, options.get(_CONNECTION_RATE)),
    )
    return _checked(text, listener, options)


def _connection_rate(text: str, rate: str | None) -> int | None:
    if rate is None:
        return None
    if not (rate.isascii() and rate.isdigit() and int(rate)):
        raise SettingsError(f"the listener {text!r}: {_CONNECTION_RATE} is a whole number greater than 0")
    return int(rate)


def _options(text: str, query: str) -> dict[str, str]:
    # A plus separates mechanisms here, and is not a space.
    pairs = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True) if query else []
    options: dict[str, str] = {}
    for name, value in pairs:
        if name not in _OPTIONS:
            raise SettingsError(f"the listener {text!r} has an unknown option {name}: use {', '.join(_OPTIONS)}")
        if name in options:
            raise SettingsError(f"the listener {text!r} has the option {name} twice")
        if not value:
            raise SettingsError(f"the listener {text!r} has the option {name} without a value")
        options[name] = unquote(value)
    return options


def _checked(text: str, listener: KafkaListener, options: dict[str, str]) -> KafkaListener:
    if listener.client_auth not in CLIENT_AUTH:
        raise SettingsError(f"the listener {text!r}: client.auth is one of {', '.join(CLIENT_AUTH)}")
    for mechanism in listener.mechanisms:
        if mechanism not in MECHANISMS:
            raise SettingsError(
                f"the listener {text!r} has an unknown SASL mechanism {mechanism}: use {', '.join(MECHANISMS)}"
            )
    if "sasl" in options and not listener.uses_sasl:
        raise SettingsError(f"the listener {text!r} has SASL mechanisms: its protocol must be sasl_tls or sasl_plain")
    if "client.auth" in options and not listener.uses_tls:
        raise SettingsError(f"the listener {text!r} has client.auth: its protocol must be tls or sasl_tls")
    if listener.advertise and not parse_address(listener.advertise, default_port=0).host:
        raise SettingsError(f"the listener {text!r} advertises no host: write HOST or HOST:PORT")
    if listener.uses_sasl and not listener.mechanisms:
        raise SettingsError(f"the listener {text!r} offers no SASL mechanism: set sasl.enabled.mechanisms")
    return replace(
        listener,
        client_auth=listener.client_auth if listener.uses_tls else "none",
        mechanisms=listener.mechanisms if listener.uses_sasl else (),
    )
