"""Asks the other brokers of a cluster whether they are ready for a step of `headrace secure`.

A broker that uses TLS towards the others (step 2) cannot reach one without a TLS listener (step 1), and one whose plain
listener serves its own machine only (step 3) is not reached by one that still uses that listener (step 2).
"""

from pathlib import Path

from headrace.cli.errors import CommandFailed
from headrace.cli.secure.plan import BROKER_USER, SECURE_LISTENER
from headrace.config.address import EVERY_ADDRESS, parse_address
from headrace.config.broker_rows import LOOPBACK
from headrace.config.credentials import NO_CREDENTIALS, Credentials
from headrace.wire import Cluster, Timeouts, WireError

_TIMEOUTS = Timeouts(connect_s=5.0, request_s=10.0, patience_s=15.0)


def brokers_away(plain: str) -> list[int]:
    """The brokers of the cluster that are down, as the broker with this plain listener sees it."""
    try:
        with Cluster(
            _local(plain), client_id="headrace-cli", timeouts=_TIMEOUTS, credentials=NO_CREDENTIALS
        ) as cluster:
            return [number for number, node in cluster.describe().brokers.items() if node.is_fenced]
    except WireError:
        return []


def check_others(step: int, plain: str, secure: str, ca: Path, broker_password: str) -> None:
    """Raise `CommandFailed` unless every broker of the cluster is running and has done the step before this one.

    `plain` and `secure` are the listeners of the broker on this machine.
    """
    credentials = Credentials(user=BROKER_USER, password=broker_password, tls=True, ca_file=str(ca))
    try:
        with Cluster(
            _local(plain), client_id="headrace-cli", timeouts=_TIMEOUTS, credentials=NO_CREDENTIALS
        ) as cluster:
            nodes = cluster.describe().brokers
        away = [number for number, node in nodes.items() if node.is_fenced]
        if away:
            raise CommandFailed(_is_away(away, step))
        with _cluster(secure, credentials) as cluster:
            behind = [number for number in nodes if number not in cluster.describe().brokers]
            if step > 2 and not behind:
                behind = [
                    number
                    for number in nodes
                    if cluster.broker_settings(number).get("inter.broker.listener") != SECURE_LISTENER
                ]
    except WireError as error:
        raise CommandFailed(
            f"the brokers of the cluster cannot be asked whether they have done step {step - 1}: {error}; nothing was "
            "changed. If you know that they have, repeat this with --unchecked"
        ) from None
    if behind:
        one = len(behind) == 1
        raise CommandFailed(
            f"{_named(behind)} {'has' if one else 'have'} not done step {step - 1}: run it there first, since the "
            f"brokers could not reach {'it' if one else 'them'} any more; nothing was changed"
        )


def _is_away(away: list[int], step: int) -> str:
    one = len(away) == 1
    return (
        f"{_named(away)} {'is' if one else 'are'} down: start {'it' if one else 'them'} and run step {step - 1} there, "
        f"if that is not done, before step {step}; nothing was changed. A broker without that step is cut off from the "
        "others when it returns. For one that does not return, repeat this with --unchecked"
    )


def _named(numbers: list[int]) -> str:
    return f"broker{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _cluster(address: str, credentials: Credentials = NO_CREDENTIALS) -> Cluster:
    return Cluster(_local(address), client_id="headrace-cli", timeouts=_TIMEOUTS, credentials=credentials)


def _local(address: str) -> str:
    """Where a listener is reached from its own machine."""
    endpoint = parse_address(address)
    host = LOOPBACK if endpoint.host in EVERY_ADDRESS else endpoint.host
    return f"[{host}]:{endpoint.port}" if ":" in host else f"{host}:{endpoint.port}"
