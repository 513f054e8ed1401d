"""Misspelt keyword arguments are errors at once, and signatures show what there is."""

# mypy: disable-error-code="call-arg, call-overload"

import inspect
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, create_autospec

import pytest

from headrace import Backoff, Client, Deduplicator, NewMessage, Outgoing, aio

client = Client("localhost:1")
queue = client.queue("emails")
aio_client = aio.Client("localhost:1")
aio_queue = aio_client.queue("emails")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Client(bootstap="x"), "Client() has no argument 'bootstap'; did you mean bootstrap?"),
        (lambda: aio.Client(setings={}), "Client() has no argument 'setings'; did you mean settings?"),
        (
            lambda: client.publish("t", "x", hedaers={}),
            "Client.publish() has no argument 'hedaers'; did you mean headers?",
        ),
        (lambda: client.publish_soon("t", "x", ky="a"), "did you mean key?"),
        (lambda: client.consume("t", "g", max_unaked=1), "did you mean max_unacked?"),
        (lambda: client.subscribe("t", strat="latest"), "did you mean start?"),
        (lambda: client.replay("t", untill=None), "did you mean until?"),
        (lambda: client.handler("t", group="g", dead_leter="d"), "did you mean dead_letter?"),
        (lambda: client.run(signal=()), "did you mean signals?"),
        (lambda: client.topics.create("t", partition=6), "did you mean partitions?"),
        (lambda: client.topics.alter("t", seting={}), "did you mean settings?"),
        (
            lambda: queue.create(max_recieves=5),
            "Queue.create() has no argument 'max_recieves'; did you mean max_receives?",
        ),
        (lambda: queue.alter(visibilty=5), "did you mean visibility?"),
        (lambda: queue.send("x", priorty=1), "did you mean priority?"),
        (lambda: queue.send_soon("x", dely=1), "did you mean delay?"),
        (lambda: queue.send_many([], tll=1), "did you mean ttl?"),
        (lambda: queue.receive(waits=1), "did you mean wait?"),
        (lambda: queue.worker(concurency=1), "did you mean concurrency?"),
        (lambda: queue.redrive(rates=1), "did you mean rate?"),
        (lambda: aio_client.publish("t", "x", hedaers={}), "did you mean headers?"),
        (lambda: aio_client.consume("t", "g", max_unaked=1), "did you mean max_unacked?"),
        (lambda: aio_client.topics.create("t", partition=6), "did you mean partitions?"),
        (lambda: aio_queue.create(max_recieves=5), "did you mean max_receives?"),
        (lambda: aio_queue.send("x", priorty=1), "did you mean priority?"),
        (lambda: aio_queue.worker(concurency=1), "did you mean concurrency?"),
        (lambda: Outgoing("t", "x", hedaers={}), "Outgoing() has no argument 'hedaers'; did you mean headers?"),
        (lambda: NewMessage("x", priorty=1), "did you mean priority?"),
        (lambda: Backoff(atempts=1), "did you mean attempts?"),
        (lambda: Deduplicator("x.db", scop="x"), "did you mean scope?"),
        (lambda: client.publish("t", "x", zzz=1), "; there are content_type, correlation_id, headers,"),
    ],
)
def test_a_misspelt_argument_is_an_error_that_names_the_right_one(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert says in str(caught.value)


@pytest.mark.parametrize("kind", [Client, aio.Client, type(queue), type(aio_queue), type(client.topics), aio.Topics])
def test_public_methods_show_their_arguments_and_say_what_they_do(kind: type) -> None:
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            kinds = {each.kind for each in inspect.signature(method).parameters.values()}
            assert inspect.Parameter.VAR_KEYWORD not in kinds, name
            assert (method.__doc__ or "").strip(), f"{kind.__module__}.{kind.__name__}.{name} has no docstring"


def test_coroutine_functions_are_for_the_other_client() -> None:
    plain = Client("localhost:1")

    async def bill(message: object) -> None: ...

    plain.handler("orders", group="g")(bill)
    with pytest.raises(TypeError, match=r"bill is a coroutine function: those are for headrace\.aio\.Client"):
        plain.run()
    worker = Client("localhost:1")
    worker.queue("emails").worker()(bill)
    with pytest.raises(TypeError, match=r"headrace\.aio\.Client"), worker.running():
        pass


def test_a_start_that_does_not_exist_is_an_error_at_once() -> None:
    start: Any = "erliest"
    with pytest.raises(ValueError, match="start must be earliest or latest, not 'erliest'"):
        client.handler("orders", group="g", start=start)(print)
    with pytest.raises(ValueError, match="start must be earliest or latest"):
        client.consume("orders", group="g", start=start)


def test_a_mock_of_a_client_is_awaited_where_the_client_is() -> None:
    mock = create_autospec(aio.Client, instance=True)
    assert isinstance(mock.publish, AsyncMock)
    assert not isinstance(mock.ack, AsyncMock)


def test_help_shows_options_and_an_example() -> None:
    assert "headers" in inspect.signature(Client.publish).parameters
    assert 'client.publish("orders", {"item": "tea"}, key="alice"' in (Client.publish.__doc__ or "")
