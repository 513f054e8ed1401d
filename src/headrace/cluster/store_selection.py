"""Opening the broker's metadata store: etcd if `etcd.endpoints` is set, else a SQLite file in the data directory."""

import os
from pathlib import Path

from headrace.cluster.sqlite import SqliteStore
from headrace.cluster.store import MetadataStore
from headrace.config.address import parse_address
from headrace.config.broker import BrokerSettings
from headrace.model.errors import SettingsError, StartupError
from headrace.model.extras import CLUSTER, require
from headrace.runtime.clock import Clock

METADATA_FILE = "metadata.sqlite"
ETCD_PORT = 2379
_SECURE, _PLAIN = "https://", "http://"


async def open_store(settings: BrokerSettings, data_dir: Path, clock: Clock) -> MetadataStore:
    """Open the store that these settings name; the caller closes it. Raises `StartupError`."""
    if not settings.etcd_endpoints:
        return await SqliteStore.open(data_dir / METADATA_FILE, clock)
    # Read when grpc is imported. Its log lines repeat errors that we raise in our own words.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    require(CLUSTER)
    from headrace.cluster.etcd import EtcdStore
    from headrace.cluster.etcd_client import EtcdAccess

    session_s = settings.broker_session_timeout_ms / 1000
    access = EtcdAccess(
        tuple(map(_address, settings.etcd_endpoints)),
        is_secure=_is_secure(settings),
        ca=_pem("etcd.ca.file", settings.etcd_ca_file),
        certificate=_pem("etcd.cert.file", settings.etcd_cert_file),
        key=_pem("etcd.key.file", settings.etcd_key_file),
        user=settings.etcd_user,
        password=settings.etcd_password,
        # Short enough to give up a hanging member and try another within the session.
        connect_timeout_s=max(0.5, min(2.0, session_s / 4)),
    )
    return await EtcdStore.open(access, settings.etcd_prefix, timeout_s=max(1.0, min(5.0, session_s / 3)))


def _address(text: str) -> str:
    try:
        endpoint = parse_address(text.removeprefix(_SECURE).removeprefix(_PLAIN).rstrip("/"), default_port=ETCD_PORT)
    except SettingsError as error:
        raise StartupError(f"etcd.endpoints: {error}") from None
    if not endpoint.host or not endpoint.port:
        raise StartupError(f"etcd.endpoints: {text!r} is not an address: write HOST:PORT")
    return str(endpoint)


def _is_secure(settings: BrokerSettings) -> bool:
    endpoints = settings.etcd_endpoints
    if bool(settings.etcd_cert_file) != bool(settings.etcd_key_file):
        raise StartupError("etcd.cert.file and etcd.key.file belong together: set both, or neither")
    has_files = bool(settings.etcd_ca_file or settings.etcd_cert_file)
    if has_files and any(endpoint.startswith(_PLAIN) for endpoint in endpoints):
        raise StartupError("etcd.endpoints has an http:// address, and the files for TLS are set: write https://")
    schemes = {endpoint.startswith(_SECURE) for endpoint in endpoints}
    if not has_files and len(schemes) > 1:
        raise StartupError("etcd.endpoints has addresses with https:// and without: write it on all of them")
    return has_files or schemes == {True}


def _pem(name: str, path: str) -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StartupError(f"{name}={path} cannot be read: {error.strerror}") from None
