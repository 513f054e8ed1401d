"""What is read is what a broker writes, and every byte that is missing is noticed."""

import pytest

from headrace.model.errors import ProtocolError
from headrace.protocol.transaction_state import DescribedTransaction, read_transaction_state

NAME, STATE = b"\x09pipeline", b"\x06Empty"
ANSWER = (
    b"\x00\x00\x00\x00\x02\x00\x00" + NAME + STATE + b"\x00\x00\xea\x60" + b"\xff" * 8 + b"\x00" * 7 + b"\x05\x00\x02"
)


def test_a_transaction_that_is_not_open() -> None:
    assert read_transaction_state(b"head" + ANSWER + b"\x01\x00\x00", 4) == DescribedTransaction(
        0, "Empty", 60_000, -1, 5, 2
    )


def test_answers_that_are_cut_off() -> None:
    for length in range(len(ANSWER)):
        with pytest.raises(ProtocolError):
            read_transaction_state(ANSWER[:length], 0)
    with pytest.raises(ProtocolError):
        read_transaction_state(b"\x00\x00\x00\x00\x01\x00", 0)
