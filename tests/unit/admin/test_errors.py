"""Errors of Kafka's APIs as the HTTP API answers them."""

from kio.schema.errors import ErrorCode

from headrace.admin.errors import kafka_error


def test_a_quota_that_is_used_up_is_too_many_requests() -> None:
    error = kafka_error(ErrorCode.throttling_quota_exceeded, "try again in 500 ms")
    assert (error.status, error.code, str(error)) == (429, "throttling_quota_exceeded", "try again in 500 ms")
    assert error.headers["retry-after"] == "1"
