"""What a broker needs to authenticate: certificates that are reloaded, SASL mechanisms, and the first administrator."""

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from headrace.app.secured_home import INITIAL_ACCESS, SECURITY_FOLDER, forget_initial_access, read_initial_access
from headrace.cluster.access import AccessControl
from headrace.config.broker import BrokerSettings
from headrace.config.load import SECURITY_FILE
from headrace.kafka.services import Services
from headrace.model.acls import CLUSTER_NAME, WILDCARD, Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.model.errors import StartupError
from headrace.model.features import SECURITY_LEVEL, needed
from headrace.model.users import principal_of
from headrace.security.authenticator import Authenticator
from headrace.security.sasl.json_fetch import JsonUrl
from headrace.security.sasl.jwks import Jwks
from headrace.security.sasl.jwt_verifier import JwtVerifier, TokenRules
from headrace.security.sasl.mechanism import OAUTHBEARER
from headrace.security.sasl.mechanisms import Mechanisms
from headrace.security.sasl.scram import HASHES, new_credential
from headrace.security.sasl.shapes import CredentialShapes
from headrace.security.tls.context import TlsFiles
from headrace.security.tls.principal_rules import PrincipalRules
from headrace.security.tls.reload import ReloadingTls

log = logging.getLogger(__name__)

INITIAL_ADMIN = "HEADRACE_INITIAL_ADMIN"
"""The environment variable with USER:PASSWORD of the first administrator, for a cluster without users."""


def tls_files(settings: BrokerSettings) -> ReloadingTls | None:
    """The certificates of this broker; None if none are configured. Raises `SettingsError`."""
    if not (settings.tls_cert_file or settings.tls_ca_file):
        return None
    return ReloadingTls(
        TlsFiles(
            cert_file=_path(settings.tls_cert_file),
            key_file=_path(settings.tls_key_file),
            key_password=settings.tls_key_password or None,
            ca_file=_path(settings.tls_ca_file),
            min_version=settings.tls_min_version,
        )
    )


async def start_authentication(settings: BrokerSettings, services: Services, undo: AsyncExitStack) -> None:
    """Give `services.security` its authenticator, if a listener needs one, and create the users that must exist."""
    undo.callback(_close_authenticator, services)
    await _create_initial_admin(services)
    await _create_initial_access(Path(settings.data_dir), services)
    await _create_broker_user(settings, services)
    listeners = settings.kafka_listeners
    if not any(each.uses_sasl or each.client_auth != "none" for each in listeners):
        return
    tokens = None
    if any(OAUTHBEARER in each.mechanisms for each in listeners):
        tokens = await _token_verifier(settings, undo)
    await ensure_authenticator(settings, services, tokens)


async def ensure_authenticator(
    settings: BrokerSettings, services: Services, tokens: JwtVerifier | None = None
) -> Authenticator:
    """Return the authenticator of `services.security`; make it if no listener has needed one until now."""
    security = services.security
    if security.authenticator is None:
        secret = await services.access.scram_secret()
        # Another request may have been quicker.
        if security.authenticator is None:
            shapes = CredentialShapes(lambda: security.image.users)
            mechanisms = Mechanisms(security.user, secret, shapes=shapes, tokens=tokens)
            security.authenticator = Authenticator(mechanisms, PrincipalRules(settings.tls_principal_mapping_rules))
    return security.authenticator


def _close_authenticator(services: Services) -> None:
    if services.security.authenticator is not None:
        services.security.authenticator.close()


async def _token_verifier(settings: BrokerSettings, undo: AsyncExitStack) -> JwtVerifier:
    url = settings.sasl_oauthbearer_jwks_endpoint_url
    if not url:
        raise StartupError("OAUTHBEARER is enabled: set sasl.oauthbearer.jwks.endpoint.url to the keys of its provider")
    keys = Jwks(
        _json_url(url),
        refresh_ms=settings.sasl_oauthbearer_jwks_endpoint_refresh_ms,
        retry_backoff_ms=settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms,
        retry_backoff_max_ms=settings.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms,
    )
    keys.start()
    undo.push_async_callback(asyncio.to_thread, keys.close)
    rules = TokenRules(
        issuer=settings.sasl_oauthbearer_expected_issuer or None,
        audiences=settings.sasl_oauthbearer_expected_audience,
        clock_skew_s=settings.sasl_oauthbearer_clock_skew_seconds,
        subject_claim=settings.sasl_oauthbearer_sub_claim_name,
        scope_claim=settings.sasl_oauthbearer_scope_claim_name,
    )
    return JwtVerifier(keys, rules)


def _json_url(url: str) -> JsonUrl:
    try:
        return JsonUrl(url)
    except ValueError as error:
        raise StartupError(f"sasl.oauthbearer.jwks.endpoint.url: {error}") from None


async def _create_initial_admin(services: Services) -> None:
    text, image = os.environ.get(INITIAL_ADMIN, ""), services.metadata.image
    if not text or image.security.users or image.feature_level < SECURITY_LEVEL:
        return
    name, colon, password = text.partition(":")
    if not (name and colon and password):
        raise StartupError(f"{INITIAL_ADMIN} is not USER:PASSWORD")
    await create_admin(services.access, name, password)
    log.info("created the administrator %s, as %s says", name, INITIAL_ADMIN)


async def _create_initial_access(data_dir: Path, services: Services) -> None:
    """Create what `headrace secure` has prepared, once."""
    wanted = await asyncio.to_thread(read_initial_access, data_dir)
    if wanted is None:
        return
    level = services.metadata.image.feature_level
    if level < SECURITY_LEVEL:
        raise StartupError(
            f"{needed('access control', SECURITY_LEVEL, level)}. To start the broker for that, move "
            f"{data_dir / SECURITY_FILE} away, and {data_dir / SECURITY_FOLDER / INITIAL_ACCESS}"
        )
    access, known = services.access, services.metadata.image.security
    await access.create_acls(wanted.acls)
    for user in wanted.users:
        if user.name not in known.users:
            for credential in user.credentials.values():
                await access.put_credential(user.name, credential)
    for key in wanted.access_keys:
        if key.key_id not in known.access_keys:
            await access.create_access_key(key)
    await asyncio.to_thread(forget_initial_access, data_dir)
    log.info("created the users that headrace secure has prepared: %s", ", ".join(user.name for user in wanted.users))


async def _create_broker_user(settings: BrokerSettings, services: Services) -> None:
    """Create the user of brokers among themselves, if it does not exist. A broker has access to the store anyway."""
    name, image = settings.inter_broker_user, services.metadata.image
    if not name or name in image.security.users or image.feature_level < SECURITY_LEVEL:
        return
    await put_password(services.access, name, settings.inter_broker_password)
    log.info("created the user %s, as which brokers log in to each other", name)


async def create_admin(access: AccessControl, name: str, password: str) -> None:
    """Create a user who may do everything. The permissions come first, so that no run leaves one without them."""
    await access.create_acls(tuple(admin_acls(name)))
    await put_password(access, name, password)


async def put_password(access: AccessControl, name: str, password: str) -> None:
    """Create a user, or give one another password, for every SCRAM mechanism. `StartupError` if it cannot be used."""
    for mechanism in HASHES:
        try:
            credential = await asyncio.to_thread(new_credential, password, mechanism)
        except ValueError as error:
            raise StartupError(f"the password of {name} cannot be used: {error}") from None
        await access.put_credential(name, credential)


def admin_acls(name: str) -> Iterator[Acl]:
    """The ACLs of an administrator: every operation on every resource."""
    names = {ResourceType.CLUSTER: CLUSTER_NAME}
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID):
        yield Acl(
            kind,
            PatternType.LITERAL,
            names.get(kind, WILDCARD),
            principal_of(name),
            WILDCARD,
            AclOperation.ALL,
            Permission.ALLOW,
        )


def _path(text: str) -> Path | None:
    return Path(text) if text else None
