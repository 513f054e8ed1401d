import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.failure_headers import Failure, failure_headers, read_reason, reason_with

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts, texts, texts, st.integers(0, 100_000))
def test_a_reason_carries_a_failure(reason: str, message: str, file: str, line: int) -> None:
    failure = Failure("app.PaymentFailed", message, file, line)
    assert read_reason(reason_with(reason, failure)) == (reason, failure)


@given(texts)
def test_a_reason_of_a_user_stays_as_it_is(reason: str) -> None:
    assert read_reason(reason) == (reason, None)


@pytest.mark.parametrize(
    "fields", ["[", "[]", "[1,2,3,4]", '["a","b","c",true]', '["a","b","c",-1]', '["\\ud800","b","c",1]', "[" * 100_000]
)
def test_what_only_looks_like_fields_is_part_of_the_reason(fields: str) -> None:
    assert read_reason(f"busy\n{fields}") == (f"busy\n{fields}", None)


def test_headers_of_a_failure_without_an_exception() -> None:
    assert failure_headers("busy", None, 3) == [("headrace-reason", "busy"), ("headrace-attempts", "3")]
