"""The work of `headrace secure`."""

import json
import os
import re
import secrets
import signal
import socket
import time
from ipaddress import ip_address
from pathlib import Path

from headrace.app.broker_security import admin_acls
from headrace.app.secured_home import (
    RUNNING,
    InitialAccess,
    RunningBroker,
    running_broker,
    write_initial_access,
    write_private,
)
from headrace.cli.cluster.view import PATIENT
from headrace.cli.errors import CommandFailed
from headrace.cli.secure.others import brokers_away, check_others
from headrace.cli.secure.plan import (
    ALL_STEPS,
    PLAIN_LISTENER,
    SECURE_LISTENER,
    SecuredFiles,
    advertised_host,
    bootstrap_address,
    listener_address,
    settings_for,
    step_of,
    to_toml,
)
from headrace.config.address import EVERY_ADDRESS, parse_address
from headrace.config.broker_rows import LOOPBACK
from headrace.config.load import SECURITY_FILE, read_config_file
from headrace.model.errors import SettingsError
from headrace.model.features import FEATURE, SECURITY_LEVEL, needed
from headrace.model.users import User
from headrace.security.new_access_key import new_access_key
from headrace.security.sasl.scram import HASHES, new_credential
from headrace.security.tls.dev_certificates import make_dev_certificates, missing_hosts
from headrace.wire import Cluster, WireError

_DEFAULT_SECURE = ":9093"
_DEFAULT_PLAIN = "127.0.0.1:9092"
_BROKER_PASSWORD = "broker-password"
_PASSWORD_BYTES = 18
_RESTART_TIMEOUT_S = 120.0
_LOOK_EVERY_S = 0.1
_HOST = re.compile(r"(\*\.)?[A-Za-z0-9._-]+")


def run(
    data_dir: Path,
    *,
    hosts: list[str],
    listen: str | None,
    admin: str,
    security_dir: Path,
    step: int | None,
    restarts: bool,
    is_checked: bool,
    is_dry: bool,
    as_json: bool,
) -> None:
    running = running_broker(data_dir)
    if running is None and not data_dir.exists():
        raise CommandFailed(
            f"{data_dir} does not exist: name the data directory of a broker with --data-dir, or start one first"
        )
    _check_hosts(hosts)
    before = _known(data_dir)
    _check_step(data_dir, step, running, before)
    in_cluster, this_step, is_first = step is not None, step or ALL_STEPS, not before
    known_address = listener_address(before, SECURE_LISTENER)
    address = listen or known_address or _DEFAULT_SECURE
    if address != known_address:
        _check_is_free(address)
    if running is not None and is_first:
        _check_level(_plain_address(running, before))
    if step is not None and step > max(1, step_of(before)) and is_checked:
        _check_others(step, security_dir, running, before)
    advertised = next((host for host in hosts if "*" not in host), advertised_host(before))
    has_address = address == known_address and advertised == advertised_host(before)
    if _is_done(this_step, before, has_address, hosts, security_dir, running):
        _print(as_json, [f"nothing: it is done already, by {data_dir / SECURITY_FILE}"], {}, title="To do:")
        return
    makes_admin = is_first and not (security_dir / _BROKER_PASSWORD).exists()
    actions = _actions(data_dir, security_dir, running, this_step, makes_admin=makes_admin, restarts=restarts)
    if step == 1 and running is not None and (away := brokers_away(_plain_address(running, before))):
        actions.append(
            f"then, before step 2, step 1 on {', '.join(f'broker {each}' for each in away)} as well, which cannot be "
            "reached now"
        )
    if is_dry:
        _print(as_json, actions, {}, title="This would be done:")
        return
    facts = _prepare(
        data_dir, hosts, address, advertised, admin, security_dir, running, this_step, before, in_cluster=in_cluster
    )
    # Before the restart: the password is shown only once, and must not be lost if that fails.
    _print(as_json, actions, facts, title="Done:")
    if running is not None and restarts:
        _restart(data_dir, running)
        if not as_json:
            print("\nThe broker is ready again, and serves clients over TLS.")


def _check_hosts(hosts: list[str]) -> None:
    for host in hosts:
        if not _HOST.fullmatch(host) and not _is_address(host):
            raise CommandFailed(f"--host {host}: write a name or an address, without a port; nothing was changed")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _check_step(data_dir: Path, step: int | None, running: RunningBroker | None, before: dict[str, str]) -> None:
    """Raise `CommandFailed` if this step is not one for the broker."""
    is_in_cluster = "inter.broker.listener" in before if running is None else running.is_in_cluster
    if is_in_cluster and step is None:
        raise CommandFailed(
            f"the broker of {data_dir} belongs to a cluster: secure its brokers in three steps, --step 1 on every "
            "one of them, then --step 2, then --step 3"
        )
    done = step_of(before)
    if step is not None and step < done:
        raise CommandFailed(
            f"step {done} is done on this broker, and step {step} would make it less secure again: to go back all the "
            f"same, edit {data_dir / SECURITY_FILE}, and restart the broker"
        )
    if step is not None and step > done + 1:
        raise CommandFailed(
            f"step {done + 1} is not done on this broker: run --step {done + 1} on every broker of the cluster first; "
            "nothing was changed"
        )


def _is_done(
    step: int,
    before: dict[str, str],
    has_address: bool,
    hosts: list[str],
    security_dir: Path,
    running: RunningBroker | None,
) -> bool:
    """Whether an earlier run has done all of it, and the broker runs with it: then it need not be restarted."""
    return (
        step_of(before) == step
        and has_address
        and Path(before.get("tls.ca.file", "")).parent == security_dir.resolve()
        and all(Path(before.get(name, "")).is_file() for name in ("tls.cert.file", "tls.key.file", "tls.ca.file"))
        and not missing_hosts(Path(before["tls.cert.file"]), hosts)
        and running is not None
        and any(url.startswith("sasl_tls") for url in running.listeners.values())
    )


def _check_others(step: int, security_dir: Path, running: RunningBroker | None, before: dict[str, str]) -> None:
    """Raise `CommandFailed` if a broker of the cluster would be cut off by this step."""
    secure = listener_address(before, SECURE_LISTENER)
    if running is None or secure is None:
        raise CommandFailed(
            "this broker is not running, so that the others cannot be asked whether they are ready for this step: "
            "start it first; nothing was changed. If you know that they are, repeat this with --unchecked"
        )
    ca = Path(before.get("tls.ca.file", ""))
    check_others(step, _plain_address(running, before), secure, ca, _broker_password(security_dir))


def _check_level(plain: str) -> None:
    """Raise `CommandFailed` if the running broker has data of a version without users, and cannot create any."""
    endpoint = parse_address(plain)
    host = LOOPBACK if endpoint.host in EVERY_ADDRESS else endpoint.host
    try:
        with Cluster(f"{host}:{endpoint.port}", client_id="headrace-cli", timeouts=PATIENT) as cluster:
            level = cluster.feature(FEATURE).finalized
    except WireError:
        return  # The broker checks it when it starts.
    if level < SECURITY_LEVEL:
        raise CommandFailed(f"{needed('access control', SECURITY_LEVEL, level)}; nothing was changed")


def _check_is_free(address: str) -> None:
    """Raise `CommandFailed` if no listener can be opened there: the broker would stop instead of restarting."""
    try:
        endpoint = parse_address(address)
    except SettingsError as error:
        raise CommandFailed(f"--listen {address}: {error}") from None
    try:
        found = socket.getaddrinfo(
            endpoint.host or None, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, where in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(where)
    except OSError as error:
        raise CommandFailed(
            f"the broker cannot listen on {address} ({error.strerror}): choose another address with --listen; nothing "
            "was changed"
        ) from None


def _known(data_dir: Path) -> dict[str, str]:
    """The settings that an earlier run has written."""
    path = data_dir / SECURITY_FILE
    return read_config_file(path) if path.exists() else {}


def _actions(
    data_dir: Path,
    security_dir: Path,
    running: RunningBroker | None,
    step: int,
    *,
    makes_admin: bool,
    restarts: bool,
) -> list[str]:
    actions = [f"a CA and a certificate for this broker in {security_dir}, where they are missing"]
    if makes_admin:
        actions.append("an administrator with a password, and an access key for queues")
    actions.append(f"a listener with TLS and SCRAM, in {data_dir / SECURITY_FILE}")
    if step == ALL_STEPS:
        actions.append("ACLs decide what users may do; the plain listener serves this machine only")
        actions.append("queues are served over https, to clients with an access key, and schemas to users")
    elif step > 1:
        actions.append("brokers use TLS and SCRAM among themselves")
    if running is None:
        actions.append("nothing to restart: no broker uses this data directory now")
    elif restarts:
        actions.append(f"the broker (process {running.pid}) is restarted")
    else:
        actions.append(f"restart the broker yourself: kill -HUP {running.pid}")
    return actions


def _prepare(
    data_dir: Path,
    hosts: list[str],
    listen: str,
    advertised: str,
    admin: str,
    security_dir: Path,
    running: RunningBroker | None,
    step: int,
    before: dict[str, str],
    *,
    in_cluster: bool,
) -> dict[str, str]:
    """Write the files; returns the facts to print."""
    data_dir.mkdir(parents=True, exist_ok=True)
    security_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = make_dev_certificates(security_dir, hosts=hosts)
    if made.missing_hosts:
        raise CommandFailed(
            f"the certificate in {security_dir} is not for {', '.join(made.missing_hosts)}: remove broker.pem there, "
            "and run this again"
        )
    facts = {"ca": str(made.ca.cert_file), "listener": listen, "bootstrap": bootstrap_address(listen, advertised)}
    if not before and not (security_dir / _BROKER_PASSWORD).exists():
        facts |= _prepare_access(data_dir, admin)
    broker_password = _broker_password(security_dir)
    settings = settings_for(
        step,
        files=SecuredFiles(
            str(made.broker.cert_file.resolve()), str(made.broker.key_file.resolve()), str(made.ca.cert_file.resolve())
        ),
        listen=listen,
        plain=_plain_address(running, before),
        in_cluster=in_cluster,
        advertise=advertised,
        broker_password=broker_password,
        http_port=_http_port(running, before),
        registry_port=_registry_port(running, before),
    )
    write_private(data_dir / SECURITY_FILE, to_toml(settings).encode())
    return facts


def _http_port(running: RunningBroker | None, before: dict[str, str]) -> int:
    """The port of the HTTP listener, which stays the same; 0 if the broker has none, or is not running."""
    url = before.get("http.listen") or (running.http if running is not None else "")
    return int(url.rpartition(":")[2]) if url else 0


def _registry_port(running: RunningBroker | None, before: dict[str, str]) -> int:
    """The port of the registry's own listener, which stays the same; 0 if there is none."""
    if url := before.get("registry.listen"):
        return int(url.rpartition(":")[2])
    return 0 if running is None else running.registry_port


def _prepare_access(data_dir: Path, admin: str) -> dict[str, str]:
    """Prepare the administrator, whom the broker creates at its next start."""
    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    credentials = {mechanism: new_credential(password, mechanism) for mechanism in HASHES}
    key = new_access_key(admin, int(time.time() * 1000))
    folder = data_dir / "security"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_initial_access(folder, InitialAccess([User(admin, credentials)], [key], list(admin_acls(admin))))
    return {"user": admin, "password": password, "access_key": key.key_id, "secret_key": key.secret}


def _broker_password(security_dir: Path) -> str:
    """The password of brokers among themselves, which all of them share; made by the first run."""
    path = security_dir / _BROKER_PASSWORD
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(descriptor, "w") as file:
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        file.write(password)
    return password


def _plain_address(running: RunningBroker | None, before: dict[str, str]) -> str:
    known = listener_address(before, PLAIN_LISTENER)
    if known is not None:
        return known
    if running is None:
        return _DEFAULT_PLAIN
    for url in running.listeners.values():
        protocol, _, address = url.partition("://")
        if protocol == "plain":
            return address
    raise SettingsError("this broker has no plain listener: it is configured for security already")


def _restart(data_dir: Path, running: RunningBroker) -> None:
    """Restart the broker, and wait until it is ready with the new listener."""
    before = _written(data_dir)
    os.kill(running.pid, signal.SIGHUP)
    deadline_s = time.monotonic() + _RESTART_TIMEOUT_S
    while time.monotonic() < deadline_s:
        now = running_broker(data_dir) if _written(data_dir) != before else None
        if now is not None and any(url.startswith("sasl_tls") for url in now.listeners.values()):
            return
        if not _is_alive(running.pid):
            raise CommandFailed("the broker has stopped instead of restarting: its log says why")
        time.sleep(_LOOK_EVERY_S)
    raise CommandFailed(f"the broker is not ready again after {_RESTART_TIMEOUT_S:.0f} s: its log says why")


def _written(data_dir: Path) -> int | None:
    """When the running broker has written its file; None while there is none."""
    try:
        return (data_dir / RUNNING).stat().st_mtime_ns
    except OSError:
        return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _print(as_json: bool, actions: list[str], facts: dict[str, str], *, title: str) -> None:
    if as_json:
        print(json.dumps({"actions": actions, **facts}))
        return
    print(title)
    for action in actions:
        print(f"  - {action}")
    if not facts:
        return
    print(f"\nThe CA that clients must trust: {facts['ca']}")
    if "password" not in facts:
        return
    print(
        f"\nThe administrator, shown this once:\n"
        f"  user        {facts['user']}\n"
        f"  password    {facts['password']}\n"
        f"  access key  {facts['access_key']}\n"
        f"  secret key  {facts['secret_key']}\n"
        f"\nA Kafka client needs:\n"
        f"  bootstrap.servers={facts['bootstrap']}\n"
        f"  security.protocol=SASL_SSL\n"
        f"  sasl.mechanism=SCRAM-SHA-512\n"
        f"  sasl.username={facts['user']}\n"
        f"  sasl.password=…\n"
        f"  ssl.ca.location={facts['ca']}    (Java: ssl.truststore.type=PEM, ssl.truststore.location)\n"
        f"\nNext: headrace user create NAME, headrace acl add NAME …"
    )
