"""Errors of the broker and of Kafka's APIs as the HTTP API answers them."""

import pytest
from kio.schema.errors import ErrorCode

from headrace.admin.errors import admin_error, kafka_error
from headrace.model.errors import HeadraceError
from headrace.sqs.errors import PASSING


def test_a_quota_that_is_used_up_is_too_many_requests() -> None:
    error = kafka_error(ErrorCode.throttling_quota_exceeded, "try again in 500 ms")
    assert (error.status, error.code, str(error)) == (429, "throttling_quota_exceeded", "try again in 500 ms")
    assert error.headers["retry-after"] == "1"


@pytest.mark.parametrize("kind", PASSING)
def test_what_is_temporary_over_sqs_is_temporary_here_and_says_why(kind: type[HeadraceError]) -> None:
    error = admin_error(kind("the reason"))
    assert (error.status, str(error)) == (503, "the reason")
