"""SCRAM-SHA-256 and SCRAM-SHA-512 on the server's side (RFC 5802, RFC 7677), and the making of credentials.

- The final message must repeat exactly the nonce of the server's challenge (CVE-2024-56128).
- There is no channel binding, as in Kafka: flag `n` or `y` goes on, `p` is rejected.
- The authorization id is empty or the user's own name. `tokenauth` (Kafka's delegation tokens) is rejected.
- A user that does not exist gets a challenge, too: its salt depends only on its name and a secret of the cluster, its
  iterations and the salt's size are those of some user, and its final message is verified with the same work before it
  is rejected.
"""

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection
from dataclasses import dataclass

from headrace.model.users import ScramCredential, User, principal_of
from headrace.security.sasl.mechanism import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Answer,
    Authenticated,
    Challenge,
    Rejected,
)
from headrace.security.sasl.saslprep import is_prepared, saslprep
from headrace.security.sasl.shapes import CredentialShape

HASHES = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
DIGEST_BYTES = {SCRAM_SHA_256: 32, SCRAM_SHA_512: 64}
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384
DEFAULT_ITERATIONS = 8192
SALT_BYTES = 32
MAX_SALT_BYTES = 1024
MAX_MESSAGE_BYTES = 4096
_NONCE_BYTES = 24
_FLAGS_WITHOUT_BINDING = ("n", "y")


class ScramMessageError(ValueError):
    """A message that does not follow the syntax or the rules of the exchange."""


def salted_password(password: str, mechanism: str, salt: bytes, iterations: int) -> bytes:
    """PBKDF2 of a password as it is typed; it takes milliseconds."""
    encoded = password.encode(errors="surrogatepass")
    return hashlib.pbkdf2_hmac(HASHES[mechanism], encoded, salt, iterations)


def new_credential(
    password: str, mechanism: str = SCRAM_SHA_256, iterations: int = DEFAULT_ITERATIONS
) -> ScramCredential:
    """The credential to store for a password. Raises ValueError with one sentence to show.

    A password that SASLprep would change is refused: Java's client and kafka-python send it as it is typed, other
    clients prepare it, and one of them could not log in.
    """
    if not password:
        raise ValueError("a password must not be empty")
    if not is_prepared(password):
        raise ValueError("the password has characters that clients encode differently; choose other ones")
    _check_terms(mechanism, iterations)
    salt = secrets.token_bytes(SALT_BYTES)
    return credential_from_salted(mechanism, salt, salted_password(password, mechanism, salt, iterations), iterations)


def credential_from_salted(mechanism: str, salt: bytes, salted: bytes, iterations: int) -> ScramCredential:
    """The credential of a password that a client has salted (AlterUserScramCredentials). Raises ValueError."""
    _check_terms(mechanism, iterations)
    if not 0 < len(salt) <= MAX_SALT_BYTES:
        raise ValueError(f"a salt has between 1 and {MAX_SALT_BYTES} bytes, not {len(salt)}")
    if len(salted) != DIGEST_BYTES[mechanism]:
        raise ValueError(f"a salted password for {mechanism} has {DIGEST_BYTES[mechanism]} bytes, not {len(salted)}")
    return ScramCredential(
        mechanism=mechanism,
        salt=salt,
        iterations=iterations,
        stored_key=hashlib.new(HASHES[mechanism], client_key_of(salted, mechanism)).digest(),
        server_key=server_key_of(salted, mechanism),
    )


def client_key_of(salted: bytes, mechanism: str) -> bytes:
    return hmac.digest(salted, b"Client Key", HASHES[mechanism])


def server_key_of(salted: bytes, mechanism: str) -> bytes:
    return hmac.digest(salted, b"Server Key", HASHES[mechanism])


def _check_terms(mechanism: str, iterations: int) -> None:
    if mechanism not in HASHES:
        raise ValueError(f"{mechanism!r} is no SCRAM mechanism: {', '.join(HASHES)}")
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"iterations must be between {MIN_ITERATIONS} and {MAX_ITERATIONS}, not {iterations}")


class CredentialLookup:
    """Finds the credential of a user, or makes up one that no password fits."""

    def __init__(
        self,
        users: Callable[[str], User | None],
        secret: bytes,
        iterations: int,
        shapes: Callable[[str], Collection[CredentialShape]] = lambda mechanism: (),
    ) -> None:
        """`shapes` are those of the users' credentials for a mechanism; without any, `iterations` is the default."""
        self._users = users
        self._secret = secret
        self._default = CredentialShape(iterations, SALT_BYTES)
        self._shapes = shapes

    def user(self, name: str) -> User | None:
        """The user of this name as it is sent, or of its prepared form."""
        found = self._users(name)
        if found is not None or name.isascii():
            return found
        try:
            return self._users(saslprep(name))
        except ValueError:
            return None

    def made_up(self, name: str, mechanism: str) -> ScramCredential:
        """Always the same for a name, so that asking twice does not show that the user does not exist."""
        shape = self._shape(name, mechanism)
        salt = self._derive("salt", mechanism, name)
        if shape.salt_bytes > len(salt):
            salt = hashlib.shake_256(salt).digest(shape.salt_bytes)
        return ScramCredential(
            mechanism=mechanism,
            salt=salt[: shape.salt_bytes],
            iterations=shape.iterations,
            stored_key=self._derive("stored key", mechanism, name)[: DIGEST_BYTES[mechanism]],
            server_key=self._derive("server key", mechanism, name)[: DIGEST_BYTES[mechanism]],
        )

    def _shape(self, name: str, mechanism: str) -> CredentialShape:
        """One of the users' shapes. A shape more or less changes it for few names: each name ranks all shapes."""
        shapes = self._shapes(mechanism)
        return max(shapes, key=lambda each: self._derive(f"shape {each}", mechanism, name), default=self._default)

    def _derive(self, use: str, mechanism: str, name: str) -> bytes:
        text = "\0".join((use, mechanism, name)).encode(errors="surrogatepass")
        return hmac.digest(self._secret, text, "sha512")


@dataclass(frozen=True, slots=True)
class _First:
    """What the client's first message says."""

    gs2_header: str
    bare: str
    name: str
    nonce: str


@dataclass(frozen=True, slots=True)
class _Offered:
    """The exchange between the server's challenge and the client's proof."""

    first: _First
    credential: ScramCredential
    user: User | None
    nonce: str
    challenge: str


class ScramExchange:
    """One exchange: the client's first message, our challenge, the client's proof, our signature."""

    def __init__(self, mechanism: str, lookup: CredentialLookup, *, nonce: str | None = None) -> None:
        """`nonce` is for the test vectors of the RFCs; otherwise it is random."""
        self._mechanism = mechanism
        self._lookup = lookup
        self._nonce = nonce or secrets.token_urlsafe(_NONCE_BYTES)
        self._pending: _Offered | None = None
        self._is_over = False

    def is_slow(self, token: bytes) -> bool:
        return False

    def step(self, token: bytes) -> Answer:
        if self._is_over:
            return Rejected("the exchange is over")
        try:
            text = _decoded(token)
            answer = self._begin(text) if self._pending is None else self._finish(self._pending, text)
        except ScramMessageError as error:
            answer = Rejected(str(error), claimed_user=self._pending.first.name if self._pending else None)
        self._is_over = not isinstance(answer, Challenge)
        return answer

    def _begin(self, text: str) -> Answer:
        first = _read_first(text)
        user = self._lookup.user(first.name)
        credential = user.credentials.get(self._mechanism) if user is not None else None
        made_up = self._lookup.made_up(first.name, self._mechanism)
        nonce = first.nonce + self._nonce
        offered = credential or made_up
        challenge = f"r={nonce},s={b64encode(offered.salt).decode()},i={offered.iterations}"
        self._pending = _Offered(first, offered, user if credential else None, nonce, challenge)
        return Challenge(challenge.encode())

    def _finish(self, pending: _Offered, text: str) -> Answer:
        without_proof, proof = _read_final(text, pending)
        credential = pending.credential
        signed = f"{pending.first.bare},{pending.challenge},{without_proof}".encode()
        is_right = is_proof_of(credential, signed, proof)
        signature = hmac.digest(credential.server_key, signed, HASHES[credential.mechanism])
        user = pending.user
        if user is None:
            return Rejected("no such user, or no credential for this mechanism", claimed_user=pending.first.name)
        if not is_right:
            return Rejected("wrong password", claimed_user=user.name)
        current = self._lookup.user(pending.first.name)
        if current is None or current.credentials.get(self._mechanism) != credential:
            return Rejected("the credential was changed during the exchange", claimed_user=user.name)
        return Authenticated(b"v=" + b64encode(signature), principal_of(user.name))


def is_proof_of(credential: ScramCredential, signed: bytes, proof: bytes) -> bool:
    """Whether a client's proof shows that it knows the password; compares in constant time."""
    digest = HASHES[credential.mechanism]
    signature = hmac.digest(credential.stored_key, signed, digest)
    if len(proof) != len(signature):
        return False
    client_key = bytes(a ^ b for a, b in zip(signature, proof, strict=True))
    return hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key)


def _decoded(token: bytes) -> str:
    if len(token) > MAX_MESSAGE_BYTES:
        raise ScramMessageError(f"a message of more than {MAX_MESSAGE_BYTES} bytes")
    try:
        text = token.decode()
    except UnicodeDecodeError:
        raise ScramMessageError("a message that is not UTF-8") from None
    if "\0" in text:
        raise ScramMessageError("a message with a NUL character")
    return text


def _read_first(text: str) -> _First:
    """gs2-header, then `n=NAME,r=NONCE` and extensions."""
    parts = text.split(",", 2)
    if len(parts) != 3:
        raise ScramMessageError("a first message without a GS2 header")
    flag, authorization, bare = parts
    if flag not in _FLAGS_WITHOUT_BINDING:
        is_binding = flag.startswith("p=")
        raise ScramMessageError("channel binding is not supported" if is_binding else "a malformed GS2 header")
    attributes = bare.split(",")
    if len(attributes) < 2:
        raise ScramMessageError("a first message without a name or a nonce")
    name = unescaped(_value("n", attributes[0]))
    nonce = _value("r", attributes[1])
    if not is_nonce(nonce):
        raise ScramMessageError("a malformed nonce")
    if authorization and unescaped(_value("a", authorization)) != name:
        raise ScramMessageError("the authorization id is not the user's name")
    _check_extensions(attributes[2:])
    return _First(f"{flag},{authorization},", bare, name, nonce)


def _check_extensions(attributes: list[str]) -> None:
    for each in attributes:
        key, equals, _ = each.partition("=")
        if not (key.isascii() and key.isalpha() and equals):
            raise ScramMessageError("a malformed extension")
        if key == "m":
            raise ScramMessageError("a mandatory extension that is not supported")
        if key.lower() == "tokenauth":
            raise ScramMessageError("delegation tokens are not supported")


def _read_final(text: str, pending: _Offered) -> tuple[str, bytes]:
    """`c=BINDING,r=NONCE`, extensions and `p=PROOF`, as the text before the proof and the proof."""
    without_proof, comma, proof = text.rpartition(",p=")
    attributes = without_proof.split(",")
    if not comma or len(attributes) < 2:
        raise ScramMessageError("a final message without a proof")
    if decoded_base64(_value("c", attributes[0])) != pending.first.gs2_header.encode():
        raise ScramMessageError("the channel binding is not the first message's")
    nonce = _value("r", attributes[1])
    if not hmac.compare_digest(nonce.encode(), pending.nonce.encode()):
        if nonce == pending.first.nonce + pending.nonce:
            raise ScramMessageError(
                "the nonce is not the challenge's, as from librdkafka before 2.6.1: upgrade it, or use PLAIN over TLS"
            )
        raise ScramMessageError("the nonce is not the challenge's")
    _check_extensions(attributes[2:])
    return without_proof, decoded_base64(proof)


def _value(key: str, attribute: str) -> str:
    prefix = f"{key}="
    if not attribute.startswith(prefix) or attribute == prefix:
        raise ScramMessageError(f"the attribute {key} is missing")
    return attribute.removeprefix(prefix)


def is_nonce(text: str) -> bool:
    return bool(text) and all("!" <= each <= "~" and each != "," for each in text)


def escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str:
    """A name with =2C and =3D decoded; any other `=` is an error."""
    pieces = name.split("=")
    text = pieces[0]
    for piece in pieces[1:]:
        code, rest = piece[:2], piece[2:]
        if code not in ("2C", "3D"):
            raise ScramMessageError("a name with an unescaped =")
        text += ("," if code == "2C" else "=") + rest
    return text


def decoded_base64(text: str) -> bytes:
    """The bytes of their one base64 form; other forms of the same bytes are errors."""
    try:
        content = b64decode(text, validate=True)
    except ValueError:
        raise ScramMessageError("malformed base64") from None
    if b64encode(content).decode() != text:
        raise ScramMessageError("base64 with unused bits")
    return content
