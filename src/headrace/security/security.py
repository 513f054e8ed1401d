"""Access control of a broker: the one place that is asked whether a client may do something.

`authorizer` is None while authorization is off: a check then costs one attribute. It is replaced when an ACL or one of
its settings changes, so that a revoked permission is gone at once, on live connections too.
"""

import logging
from collections import Counter
from collections.abc import Callable

from headrace.config.broker import BrokerSettings
from headrace.model.acls import AclOperation, Resource, ResourceType
from headrace.model.image import SecurityImage
from headrace.model.users import User
from headrace.observe.repeated_log import RepeatedLog
from headrace.security.audit.log import AuditLog, audit_rules
from headrace.security.authenticator import Authenticator, Login
from headrace.security.authorizer import Authorizer
from headrace.security.denial import Denial
from headrace.security.subject import Subject

log = logging.getLogger(__name__)

__all__ = ["Denial", "Security"]


class Security:
    def __init__(self, audit: AuditLog | None = None) -> None:
        """Without an audit log nothing is recorded."""
        self.audit = audit or AuditLog(lambda: 0)
        self.authorizer: Authorizer | None = None
        self.image = SecurityImage()
        self.authenticator: Authenticator | None = None
        """None on a broker without listeners that authenticate."""
        self.client_failures = RepeatedLog(log)
        """The log of connections that are refused, fail or are closed, by their address."""
        self.on_denied: list[Callable[[Denial], None]] = [self.audit.denied]
        self.on_login: list[Callable[[Login], None]] = [self.audit.logged_in]
        self.permitted: Counter[tuple[AclOperation, ResourceType]] = Counter()
        """How many requests, or parts of them, were allowed. What a list may show does not count."""
        self._decides_by: tuple[object, ...] = ()

    def update(self, image: SecurityImage, settings: BrokerSettings) -> None:
        """Decide by this image and these settings from now on."""
        self.image = image
        self.audit.configure(audit_rules(settings))
        decides_by = (
            image.acls,
            settings.authorization_enable,
            settings.super_user_principals,
            settings.allow_everyone_if_no_acl_found,
        )
        if decides_by == self._decides_by:
            return
        self._decides_by = decides_by
        self.authorizer = (
            Authorizer(
                image.acls,
                super_users=settings.super_user_principals,
                allow_everyone=settings.allow_everyone_if_no_acl_found,
            )
            if settings.authorization_enable
            else None
        )

    def user(self, name: str) -> User | None:
        """A user as of now."""
        return self.image.users.get(name)

    def allows(self, subject: Subject, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Whether the client may do this."""
        authorizer = self.authorizer
        return authorizer is None or authorizer.allows(subject.principal, subject.host, operation, kind, name)

    def logged_in(self, login: Login) -> None:
        """Report the outcome of an authentication to the audit log."""
        for listener in self.on_login:
            listener(login)

    def denied(
        self,
        subject: Subject,
        client_id: str,
        action: str,
        operation: AclOperation,
        kind: ResourceType,
        name: str,
        *,
        reason: str = "",
    ) -> None:
        """Report to the audit log that `allows` has said no, or for the given reason something else has."""
        authorizer = self.authorizer
        if authorizer is None or not self.on_denied:
            return
        resource = Resource(kind, name)
        reason = reason or authorizer.decide(subject.principal, subject.host, operation, resource).reason
        denial = Denial(subject, client_id, action, operation, resource, reason)
        for listener in self.on_denied:
            listener(denial)
