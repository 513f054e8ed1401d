"""Users, and exchanges between a client and the server without a wire."""

from headrace.model.users import User
from headrace.security.sasl.client import ClientExchange
from headrace.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512, Answer, Challenge, Exchange
from headrace.security.sasl.mechanisms import Mechanisms
from headrace.security.sasl.scram import new_credential

SECRET = b"a secret of the whole cluster"
PASSWORD = "correct horse"
MECHANISMS = (SCRAM_SHA_256, SCRAM_SHA_512)


def user(name: str = "alice", password: str = PASSWORD, mechanisms: tuple[str, ...] = MECHANISMS) -> User:
    return User(name, {each: new_credential(password, each, 4096) for each in mechanisms})


def server(*users: User, secret: bytes = SECRET) -> Mechanisms:
    return Mechanisms({each.name: each for each in users}.get, secret, iterations=4096)


def begin(mechanisms: Mechanisms, name: str) -> Exchange:
    exchange = mechanisms.begin(name)
    assert exchange is not None
    return exchange


def login(client: ClientExchange, exchange: Exchange) -> Answer:
    """The server's last answer. The client has then ended well, or was rejected."""
    token = client.first()
    while isinstance(answer := exchange.step(token), Challenge):
        reply = client.next(answer.token)
        assert reply is not None, "the client is done before the server"
        token = reply
    return answer
