"""The access keys that requests over HTTP are signed with: those of users, and those of the setting `sqs.access.keys`.

Each request looks its key up in the current image of the cluster, so that keys are rotated without a restart. A key of
the setting belongs to the user whose name is the id of the key; it wins over one of the same id in the store.
"""

from collections.abc import Mapping

from headrace.security.security import Security


class AccessKeys:
    def __init__(self, configured: Mapping[str, str], security: Security, *, is_open: bool) -> None:
        self._configured = configured
        self._security = security
        self._is_open = is_open

    @property
    def is_required(self) -> bool:
        """Whether requests must be signed. Not where everyone who reaches the listener may do everything: on loopback,
        or with `insecure`, while there are no keys and authorization is off."""
        return (
            not self._is_open
            or bool(self._configured)
            or self._security.authorizer is not None
            or bool(self._security.image.access_keys)
        )

    def secret(self, key_id: str) -> str | None:
        """The secret of a key; None for an unknown one, or for one of a user that was deleted."""
        secret = self._configured.get(key_id)
        if secret is not None:
            return secret
        image = self._security.image
        key = image.access_keys.get(key_id)
        return key.secret if key is not None and key.user in image.users else None

    def has_user(self, name: str) -> bool:
        """Whether a user exists, who may log in with its password."""
        return name in self._security.image.users

    def owner(self, key_id: str) -> str:
        """The name of the user that a known key belongs to."""
        if key_id in self._configured:
            return key_id
        return self._security.image.access_keys[key_id].user
