"""A broker with users, access keys and ACLs, and clients that sign requests over HTTP by themselves."""

import asyncio
import json
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

from headrace.app.broker import BrokerApp
from headrace.kafka.services import Services
from headrace.model import sigv4
from headrace.model.acls import CLUSTER_NAME, Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.model.users import AccessKey, ScramCredential, principal_of
from headrace.sqs.endpoint import SqsEndpoint
from headrace.testing import Broker
from tests.waiting import until

ACCOUNT = "000000000000"
REGION = "us-east-1"
_NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"


class Key(NamedTuple):
    id: str
    secret: str


ADMIN = Key("admin", "admin's secret")


class SignedAnswer(NamedTuple):
    status: int
    body: bytes
    code: str
    """The code of an error; empty if it is none."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class SecuredBroker:
    """A broker whose ACLs decide. `admin` is a super user by a key of the setting `sqs.access.keys`."""

    def __init__(self, broker: Broker, services: Services, endpoint: SqsEndpoint) -> None:
        self.broker = broker
        self._services = services
        self._endpoint = endpoint

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        assert self.broker._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self.broker._loop).result(30)

    def user(self, name: str, number: int = 1) -> Key:
        """A user with a new access key."""
        access = self._services.access
        self.run(access.put_credential(name, ScramCredential("SCRAM-SHA-256", b"salt", 4096, b"stored", b"server")))
        key = Key(f"AK{name.upper()}{number}", f"{name}'s secret {number}")
        self.run(access.create_access_key(AccessKey(key.id, name, key.secret, 0)))
        return key

    def delete_key(self, key: Key) -> None:
        self.run(self._services.access.delete_access_key(key.id))

    def delete_user(self, name: str) -> None:
        self.run(self._services.access.delete_user(name))

    def allow(self, user: str, operation: AclOperation, queue: str) -> None:
        self.run(self._services.access.create_acls([acl(user, operation, queue)]))

    def deny(self, user: str, operation: AclOperation, queue: str) -> None:
        self.run(self._services.access.create_acls([acl(user, operation, queue, Permission.DENY)]))

    def revoke(self, user: str, operation: AclOperation, queue: str) -> None:
        self.run(self._services.access.delete_acls([acl(user, operation, queue)]))

    def wait_for_receives(self, number: int) -> None:
        """Wait until so many receives wait for messages."""
        until(lambda: len(self._endpoint._waiting) == number, "receives that wait")

    # -- requests

    def json(self, key: Key | None, action: str, parameters: Mapping[str, Any]) -> SignedAnswer:
        headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
        return self.send(key, headers, json.dumps(parameters).encode())

    def query(self, key: Key | None, action: str, parameters: Mapping[str, Any]) -> SignedAnswer:
        fields = {"Action": action, "Version": "2012-11-05", **dict(_fields("", parameters))}
        return self.send(key, {"Content-Type": "application/x-www-form-urlencoded"}, urlencode(fields).encode())

    def extended(self, key: Key | None, call: str, parameters: Mapping[str, Any]) -> SignedAnswer:
        headers = {"X-Amz-Target": f"Headrace.{call}", "Content-Type": "application/json"}
        return self.send(key, headers, json.dumps(parameters).encode())

    def as_admin(self, action: str, /, **parameters: Any) -> Any:
        answer = self.json(ADMIN, action, parameters)
        assert answer.status == 200, answer
        return answer.json

    def send(
        self,
        key: Key | None,
        headers: Mapping[str, str],
        body: bytes,
        *,
        path: str = "/",
        method: str = "POST",
        unsigned: Mapping[str, str] | None = None,
        when: datetime | None = None,
    ) -> SignedAnswer:
        """`unsigned` headers are added after the request was signed."""
        host = urlsplit(self.broker.http_url).netloc
        given = {"Host": host, **headers}
        if key is not None:
            stamp = (when or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
            given |= sigv4.sign(method, path, given, body, key_id=key.id, secret=key.secret, region=REGION, when=stamp)
        return self.raw(method, path, {**given, **(unsigned or {})}, body)

    def raw(self, method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> SignedAnswer:
        connection = HTTPConnection(urlsplit(self.broker.http_url).netloc, timeout=30)
        try:
            connection.request(method, target, body, dict(headers))
            answer = connection.getresponse()
            content = answer.read()
            return SignedAnswer(answer.status, content, _code(answer.status, dict(answer.getheaders()), content))
        finally:
            connection.close()


def acl(user: str, operation: AclOperation, queue: str, permission: Permission = Permission.ALLOW) -> Acl:
    kind = ResourceType.CLUSTER if queue == CLUSTER_NAME else ResourceType.TOPIC
    return Acl(kind, PatternType.LITERAL, queue, principal_of(user), "*", operation, permission)


def _code(status: int, headers: Mapping[str, str], body: bytes) -> str:
    if status == 200:
        return ""
    by_name = {name.lower(): value for name, value in headers.items()}
    if by_name["content-type"] == "text/xml":
        return ElementTree.fromstring(body).findtext(f"{_NAMESPACE}Error/{_NAMESPACE}Code") or ""
    if "x-amzn-query-error" in by_name:
        return by_name["x-amzn-query-error"].partition(";")[0]
    return str(json.loads(body)["error"])


def _fields(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    """The fields of the query protocol, by the names of the JSON protocol, which AWS accepts, too."""
    if isinstance(value, list):
        for number, each in enumerate(value, 1):
            yield from _fields(f"{prefix}.{number}", each)
    elif isinstance(value, dict) and prefix.rpartition(".")[2] in ("Attributes", "Tags"):
        key = "Key" if prefix.endswith("Tags") else "Name"
        for number, (name, each) in enumerate(value.items(), 1):
            yield f"{prefix}.{number}.{key}", name
            yield f"{prefix}.{number}.Value", each
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _fields(f"{prefix}.{name}" if prefix else name, each)
    else:
        yield prefix, str(value)


@contextmanager
def secured_broker(*, tls: bool = False) -> Iterator[SecuredBroker]:
    """Start a broker that requires signatures and permissions."""
    seen: list[tuple[Services, SqsEndpoint]] = []
    make_endpoint = BrokerApp._sqs_endpoint

    def make_and_remember(app: BrokerApp, services: Services) -> SqsEndpoint:
        seen.append((services, make_endpoint(app, services)))
        return seen[-1][1]

    given = {
        "authorization.enable": True,
        "super.users": "User:admin",
        "sqs.access.keys": f"{ADMIN.id}:{ADMIN.secret}",
        "sqs.recreate.wait.ms": 0,
    }
    BrokerApp._sqs_endpoint = make_and_remember  # type: ignore[method-assign, assignment]
    try:
        with Broker(settings=given, tls=tls) as broker:
            yield SecuredBroker(broker, *seen[-1])
    finally:
        BrokerApp._sqs_endpoint = make_endpoint  # type: ignore[method-assign]
