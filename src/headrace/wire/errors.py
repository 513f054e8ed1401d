"""The errors of the wire client. `str(error)` is one sentence for a person.

WireError
├── BrokerUnreachable    no broker answers: wrong address, no broker there, or the connection broke
├── TimedOut             a broker did not answer a request in time
├── NotKafka             the server does not speak the Kafka protocol
├── TlsFailed            no TLS with this server: its certificate, ours, or a port without or with TLS
├── AuthenticationFailed the broker refuses the user or the token, or wants one
├── Unsupported          the broker is too old for the request
└── Refused              the broker answered with an error; `code` says which
    ├── Unready          a retriable state (no leader, coordinator loading …) that lasted too long
    ├── TopicNotFound    no such topic or partition
    ├── OffsetGone       an offset that the log does not have (any more, or yet)
    ├── ProducerFenced   a newer producer has the transactional id, or the transaction timed out
    └── TransactionLost  the transaction is not in a state that allows the request

Errors can be pickled, as Spark's workers need.
"""

from kio.schema.errors import ErrorCode as ErrorCode

from headrace.model.errors import HeadraceError


class WireError(HeadraceError):
    """Base of the errors of this package."""


class BrokerUnreachable(WireError): ...


class TimedOut(WireError): ...


class NotKafka(WireError):
    def __init__(self, message: str, sample: bytes = b"") -> None:
        super().__init__(message)
        self.sample = sample
        """The first bytes of the answer, if there was one."""


class TlsFailed(WireError): ...


class AuthenticationFailed(WireError): ...


class Unsupported(WireError): ...


class Refused(WireError):
    def __init__(self, message: str, code: ErrorCode = ErrorCode.unknown_server_error) -> None:
        super().__init__(message)
        self.code = code


class Unready(Refused): ...


class TopicNotFound(Refused): ...


class OffsetGone(Refused): ...


class ProducerFenced(Refused): ...


class TransactionLost(Refused): ...


PASSING = (BrokerUnreachable, TimedOut, Unready)
"""Retriable error codes: the same request may succeed later."""

_UNREADY = frozenset(code for code in ErrorCode if code.retriable) - {
    ErrorCode.corrupt_message,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
}
_CLASSES: dict[ErrorCode, type[Refused]] = {
    ErrorCode.unknown_topic_or_partition: TopicNotFound,
    ErrorCode.unknown_topic_id: TopicNotFound,
    ErrorCode.offset_out_of_range: OffsetGone,
    ErrorCode.producer_fenced: ProducerFenced,
    ErrorCode.invalid_producer_epoch: ProducerFenced,
    ErrorCode.invalid_txn_state: TransactionLost,
    ErrorCode.invalid_producer_id_mapping: TransactionLost,
    ErrorCode.transaction_abortable: TransactionLost,
    ErrorCode.transactional_id_not_found: TransactionLost,
}


def refusal(what: str, code: int, message: str | None = None) -> Refused:
    """The error for a broker's error code. `what` names the operation: "fetching orders-0"."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return Refused(f"{what} failed: the broker answers with the unknown error {code}")
    reason = f"{known.name.upper()}: {message}" if message else known.name.upper()
    kind = Unready if known in _UNREADY else _CLASSES.get(known, Refused)
    return kind(f"{what} failed: the broker answers {reason}", known)


def check(what: str, code: int, message: str | None = None) -> None:
    """Raise the error for `code`, unless it means success."""
    if code:
        raise refusal(what, code, message)
