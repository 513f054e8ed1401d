import pytest
from kio.schema.errors import ErrorCode

from headrace.kafka.errors import error_code, error_message
from headrace.model import errors


class Narrower(errors.DiskFull): ...


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.DiskFull("x"), ErrorCode.kafka_storage_error),
        (Narrower("x"), ErrorCode.kafka_storage_error),
        (errors.UnknownTopicId("x"), ErrorCode.unknown_topic_id),
        (KeyError("x"), ErrorCode.unknown_server_error),
        (errors.HeadraceError("x"), ErrorCode.unknown_server_error),
    ],
)
def test_codes(error: BaseException, code: ErrorCode) -> None:
    assert error_code(error) is code


def test_what_passes_by_itself_is_retriable_for_the_client() -> None:
    for error in (errors.DiskFull, errors.LogClosed, errors.StoreConflict, errors.NotEnoughReplicas, errors.NotLeader):
        assert error_code(error("x")).retriable


def test_every_error_that_can_reach_a_client_has_a_code() -> None:
    never_sent = {errors.LoginFailed, errors.MissingExtra, errors.StartupError}
    leaves = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.HeadraceError) and not kind.__subclasses__()
    ]
    # Narrower, above, makes DiskFull no leaf.
    without = {kind for kind in leaves if error_code(kind("x")) is ErrorCode.unknown_server_error}
    assert without <= never_sent


def test_an_unexpected_error_is_not_shown_to_the_client() -> None:
    assert error_message(errors.UnknownTopic("there is no topic x")) == "there is no topic x"
    assert "secret" not in error_message(ValueError("secret"))
