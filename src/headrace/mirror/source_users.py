"""The users of a source cluster with what verifies their passwords: from Headrace only, and over TLS only."""

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.config.address import is_loopback
from headrace.mirror.reports import AskVerifiers
from headrace.mirror.source import SourceCluster
from headrace.mirror.user_plan import SourceVerifiers
from headrace.model.errors import HeadraceError, SourceLacksApi, SourceUnavailable
from headrace.model.links import MAX_COPIED
from headrace.protocol.client_codec import request_schema
from headrace.protocol.codec import make
from headrace.replication.calls import ENVELOPE, VERSION, encode_call, read_answer

MAX_ANSWER_BYTES = 16 * 1024 * 1024
_MAX_SHOWN_CHARS = 300


async def verifiers_of(source: SourceCluster, known: str) -> SourceVerifiers:
    """What the source answers. Raises `SourceUnavailable` with the reason."""
    _check_encrypted(source)
    request: Any = make(
        request_schema(ENVELOPE, VERSION).EnvelopeRequest,
        request_data=encode_call(AskVerifiers(known)),
        request_principal=None,
        client_host_address=b"",
    )
    try:
        answer = await source.ask(request, MAX_ANSWER_BYTES)
    except SourceLacksApi:
        raise SourceUnavailable(
            "the source cannot give what verifies the passwords of its users: Apache Kafka has no API for that, and "
            "Headrace has it from 0.2 on. Create the users here: headrace user create"
        ) from None
    if answer.error_code is not ErrorCode.none or answer.response_data is None:
        raise SourceUnavailable(f"the source refuses to give its users: {answer.error_code.name}")
    try:
        found = read_answer(bytes(answer.response_data), SourceVerifiers)
    except HeadraceError as error:
        raise SourceUnavailable(f"the source does not give its users: {str(error)[:_MAX_SHOWN_CHARS]}") from None
    if found.verifiers is not None and len(found.verifiers) > 2 * MAX_COPIED:
        raise SourceUnavailable(f"the source has more than {MAX_COPIED:,} users: a link copies none of them")
    return found


def _check_encrypted(source: SourceCluster) -> None:
    hosts = [broker.endpoint.host for broker in source.image.brokers.values()]
    if not source.link.tls and not all(map(is_loopback, hosts)):
        raise SourceUnavailable(
            "what verifies passwords is read over TLS only, and the link has none: create it with --tls or --ca, and "
            "addresses of a TLS listener of the source"
        )
