"""TagQueue, UntagQueue and ListQueueTags."""

import pytest

from .asking import parameter_error
from .fake import Client, run

KEY_LENGTH = parameter_error("Tag keys must be between 1 and 128 characters in length.")
ALLOWED = "may only contain unicode letters, digits, whitespace, or one of these symbols: _ . : / = + - @"


async def tags(client: Client) -> dict[str, str]:
    shown = (await client.json("ListQueueTags", QueueUrl="work")).json
    return dict(shown.get("Tags", {}))


def test_tags() -> None:
    async def test(client: Client) -> None:
        answer = await client.json("CreateQueue", QueueName="work", tags={"team": "blue"})
        url = answer.json["QueueUrl"]
        assert (await client.json("TagQueue", QueueUrl=url, Tags={"team": "red", "Team": "r", "cost": ""})).json == {}
        assert await tags(client) == {"team": "red", "Team": "r", "cost": ""}
        assert (await client.json("UntagQueue", QueueUrl=url, TagKeys=["team", "Team", "none"])).json == {}
        assert await tags(client) == {"cost": ""}
        await client.json("UntagQueue", QueueUrl=url, TagKeys=["cost"])
        assert (await client.json("ListQueueTags", QueueUrl=url)).json == {}

    run(test)


def test_tags_by_the_query_protocol() -> None:
    async def test(client: Client) -> None:
        await client.query("CreateQueue", {"QueueName": "work", "Tag.1.Key": "team", "Tag.1.Value": "blue"})
        await client.query("TagQueue", {"QueueUrl": "work", "Tag.1.Key": "a b", "Tag.1.Value": ""})
        shown = (await client.query("ListQueueTags", {"QueueUrl": "work"})).xml
        found = {each.findtext("Key"): each.findtext("Value") for each in shown.iter("Tag")}
        assert found == {"team": "blue", "a b": ""}
        await client.query("UntagQueue", {"QueueUrl": "work", "TagKey.1": "team"})
        assert await tags(client) == {"a b": ""}

    run(test)


def test_no_tags_and_no_keys() -> None:
    async def test(client: Client) -> None:
        await client.queue()
        nothing: tuple[dict[str, str] | None, ...] = (None, {})
        for without in nothing:
            answer = await client.json("TagQueue", QueueUrl="work", Tags=without)
            assert answer.error == (400, "MissingParameter", "The request must contain the parameter Tags.")
        assert (await client.json("UntagQueue", QueueUrl="work")).error == (
            400,
            "MissingParameter",
            "The request must contain the parameter TagKeys.",
        )
        assert (await client.json("UntagQueue", QueueUrl="work", TagKeys=[])).error == KEY_LENGTH

    run(test)


def test_fifty_tags() -> None:
    async def test(client: Client) -> None:
        many = {f"t{number}": "v" for number in range(50)}
        assert (await client.json("CreateQueue", QueueName="work", tags=many)).status == 200
        too_many = parameter_error("Too many tags added for queue work.")
        assert (await client.json("TagQueue", QueueUrl="work", Tags={"one-more": ""})).error == too_many
        assert (await client.json("TagQueue", QueueUrl="work", Tags={"t7": "changed"})).status == 200
        assert await tags(client) == {**many, "t7": "changed"}
        new = await client.json("CreateQueue", QueueName="new", tags={**many, "one-more": ""})
        assert new.error == parameter_error("Too many tags added for queue new.")

    run(test)


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("", "v", KEY_LENGTH),
        ("k" * 129, "v", KEY_LENGTH),
        ("k", "v" * 257, parameter_error("Tag values must be between 0 and 256 characters in length.")),
        ("a#b", "v", parameter_error(f"Tag keys {ALLOWED}")),
        ("a\x1fb", "v", parameter_error(f"Tag keys {ALLOWED}")),
        ("k", "a;b", parameter_error(f"Tag values {ALLOWED}")),
        ("aws:team", "v", parameter_error('Tag keys cannot begin with "aws:", which is reserved.')),
        ("AWS:team", "v", parameter_error('Tag keys cannot begin with "aws:", which is reserved.')),
    ],
)
def test_tags_that_are_refused(key: str, value: str, error: tuple[int, str, str]) -> None:
    async def test(client: Client) -> None:
        await client.queue()
        assert (await client.json("TagQueue", QueueUrl="work", Tags={"good": "1", key: value})).error == error
        assert (await client.json("CreateQueue", QueueName="new", tags={key: value})).error == error
        assert await tags(client) == {}
        assert "new" not in client.queues.by_name

    run(test)


def test_tags_that_are_allowed() -> None:
    async def test(client: Client) -> None:
        await client.queue()
        for key, value in (
            ("k" * 128, "v" * 256),
            ("Kosten stelle_1.2:3/4=5+6-7@8", "_.:/=+-@ "),
            ("größe", "\u65e5\u672c\u8a9e"),
            ("myaws:team", "aws:"),
        ):
            assert (await client.json("TagQueue", QueueUrl="work", Tags={key: value})).status == 200
            assert (await tags(client))[key] == value

    run(test)


def test_keys_that_cannot_be_removed() -> None:
    async def test(client: Client) -> None:
        await client.queue()
        for key in ("", "k" * 129):
            assert (await client.json("UntagQueue", QueueUrl="work", TagKeys=["good", key])).error == KEY_LENGTH
        wrong = await client.json("UntagQueue", QueueUrl="work", TagKeys=["a#b"])
        assert wrong.error == parameter_error(f"Tag keys {ALLOWED}")

    run(test)
