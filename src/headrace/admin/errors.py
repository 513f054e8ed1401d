"""The errors of the HTTP API: a status, a code for programs, and a sentence for people."""

from collections.abc import Mapping
from types import MappingProxyType

from headrace.model.errors import (
    AccessKeyExists,
    HeadraceError,
    InvalidSettings,
    SettingsError,
    StartupError,
    UnknownAccessKey,
    UnknownUser,
    UnsupportedFeature,
)


class AdminError(Exception):
    """A request that is refused."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers


_STATUS: dict[type[HeadraceError], tuple[int, str]] = {
    UnknownUser: (404, "unknown_user"),
    UnknownAccessKey: (404, "unknown_access_key"),
    AccessKeyExists: (409, "access_key_exists"),
    InvalidSettings: (409, "invalid_settings"),
    SettingsError: (409, "invalid_settings"),
    StartupError: (400, "invalid_request"),
    UnsupportedFeature: (409, "unsupported_feature"),
}


def admin_error(error: HeadraceError) -> AdminError:
    """The refusal for an error of the broker; 500 for one that a request should not meet."""
    for kind, (status, code) in _STATUS.items():
        if isinstance(error, kind):
            return AdminError(status, code, str(error))
    return AdminError(500, "internal_error", "the broker could not do this; its log says why")


def unauthorized(message: str) -> AdminError:
    return AdminError(401, "unauthorized", message, {"www-authenticate": 'Basic realm="headrace", charset="UTF-8"'})


def forbidden(message: str) -> AdminError:
    return AdminError(403, "forbidden", message)
