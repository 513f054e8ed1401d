"""ListQueues and ListDeadLetterSourceQueues, in pages."""

from collections.abc import Mapping
from typing import Any

import pytest

from .asking import BASE, parameter_error, redrive
from .fake import Client, run

RANGE = parameter_error(
    "Value for parameter MaxResults is invalid. Reason: MaxResults must be an integer between 1 and 1000."
)


async def pages(client: Client, action: str, key: str, size: int, given: Mapping[str, Any]) -> list[list[str]]:
    found: list[list[str]] = []
    more: dict[str, str] = {}
    while True:
        page = (await client.json(action, MaxResults=size, **given, **more)).json
        found.append(page.get(key, []))
        if "NextToken" not in page:
            return found
        more = {"NextToken": page["NextToken"]}


def test_queues_by_prefix() -> None:
    async def test(client: Client) -> None:
        assert (await client.json("ListQueues")).json == {}
        for name in ("b", "ab", "a", "B"):
            await client.queue(name)

        async def names(**given: object) -> list[str]:
            found = (await client.json("ListQueues", **given)).json
            return [url.rpartition("/")[2] for url in found.get("QueueUrls", [])]

        assert await names() == await names(QueueNamePrefix="") == ["B", "a", "ab", "b"]
        assert await names(QueueNamePrefix="a") == ["a", "ab"]
        assert await names(QueueNamePrefix="c") == []

    run(test)


@pytest.mark.parametrize(
    ("action", "key", "given"),
    [
        ("ListQueues", "QueueUrls", {"QueueNamePrefix": "q"}),
        ("ListDeadLetterSourceQueues", "queueUrls", {"QueueUrl": "dead"}),
    ],
)
def test_lists_in_pages(action: str, key: str, given: Mapping[str, str]) -> None:
    async def test(client: Client) -> None:
        await client.queue("dead")
        urls = [await client.queue(f"q{number}", RedrivePolicy=redrive("dead")) for number in range(7)]
        for size, expected in ((3, [3, 3, 1]), (7, [7]), (1000, [7]), (1, [1] * 7)):
            found = await pages(client, action, key, size, given)
            assert [len(page) for page in found] == expected
            assert [url for page in found for url in page] == urls
        whole = (await client.json(action, **given)).json
        assert whole == {key: urls}
        for size in (0, -1, 1001):
            assert (await client.json(action, MaxResults=size, **given)).error == RANGE

    run(test)


def test_at_most_a_thousand_at_once() -> None:
    async def test(client: Client) -> None:
        for number in range(1001):
            await client.queue(f"q{number:04}")
        found = (await client.json("ListQueues")).json
        assert found.keys() == {"QueueUrls"}
        assert len(found["QueueUrls"]) == 1000
        assert [len(page) for page in await pages(client, "ListQueues", "QueueUrls", 1000, {})] == [1000, 1]

    run(test)


@pytest.mark.parametrize("token", ["%%", "bm9uZQ==", "/////", "WyJhIl0=", "ü"])
def test_tokens_that_are_no_tokens(token: str) -> None:
    async def test(client: Client) -> None:
        await client.queue()
        for action in ("ListQueues", "ListDeadLetterSourceQueues"):
            answer = await client.json(action, QueueUrl="work", MaxResults=1, NextToken=token)
            assert answer.error == parameter_error("Invalid NextToken value.")

    run(test)


def test_a_token_belongs_to_its_list() -> None:
    async def test(client: Client) -> None:
        for name in ("a1", "a2", "b1", "b2"):
            await client.queue(name)
        token = (await client.json("ListQueues", QueueNamePrefix="a", MaxResults=1)).json["NextToken"]
        without = await client.json("ListQueues", QueueNamePrefix="a", NextToken=token)
        assert without.error == parameter_error(
            "MaxResults is a mandatory parameter when you provide a value for NextToken."
        )
        changed = parameter_error(
            "Invalid NextToken value. If you are passing in NextToken, you must not change the other request "
            "parameters."
        )
        for other in ({"QueueNamePrefix": "b"}, {}):
            assert (await client.json("ListQueues", MaxResults=1, NextToken=token, **other)).error == changed
        # What is deleted meanwhile is not missed, and what is new behind the token is listed.
        await client.json("DeleteQueue", QueueUrl="a1")
        await client.queue("a3")
        rest = await client.json("ListQueues", QueueNamePrefix="a", MaxResults=5, NextToken=token)
        assert rest.json == {"QueueUrls": [f"{BASE}/a2", f"{BASE}/a3"]}

    run(test)


def test_sources_of_a_queue_that_is_no_dead_letter_queue() -> None:
    async def test(client: Client) -> None:
        await client.queue()
        assert (await client.json("ListDeadLetterSourceQueues", QueueUrl="work")).json == {"queueUrls": []}
        assert (await client.query("ListDeadLetterSourceQueues", {"QueueUrl": "work"})).status == 200
        assert (await client.json("ListDeadLetterSourceQueues")).error == (
            400,
            "MissingParameter",
            "The request must contain the parameter QueueUrl.",
        )

    run(test)
