"""Policy, AddPermission and RemovePermission."""

import json
from typing import Any

import pytest

from .asking import arn, attributes, change, parameter_error, refusals, value_error
from .fake import NOW_MS, Answer, Client, run

ACCOUNT = "111122223333"


async def add(client: Client, **more: Any) -> Answer:
    given = {"QueueUrl": "work", "Label": "a", "AWSAccountIds": [ACCOUNT], "Actions": ["SendMessage"], **more}
    return await client.json("AddPermission", **{name: value for name, value in given.items() if value is not None})


async def policy_of(client: Client) -> Any:
    shown = await attributes(client, "work", "Policy")
    return json.loads(shown["Policy"]) if shown else None


def test_permissions_are_statements_of_the_policy() -> None:
    async def test(client: Client) -> None:
        await client.queue()
        client.now_ms += 7000
        assert (await add(client)).json == {}
        two = await add(client, Label="b", AWSAccountIds=[ACCOUNT, "668614515564"], Actions=["*", "GetQueueUrl"])
        assert two.status == 200
        assert await policy_of(client) == {
            "Version": "2008-10-17",
            "Id": f"{arn('work')}/SQSDefaultPolicy",
            "Statement": [
                {
                    "Sid": "a",
                    "Effect": "Allow",
                    "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
                    "Action": "SQS:SendMessage",
                    "Resource": arn("work"),
                },
                {
                    "Sid": "b",
                    "Effect": "Allow",
                    "Principal": {"AWS": [f"arn:aws:iam::{ACCOUNT}:root", "arn:aws:iam::668614515564:root"]},
                    "Action": ["SQS:*", "SQS:GetQueueUrl"],
                    "Resource": arn("work"),
                },
            ],
        }
        shown = await attributes(client, "work", "LastModifiedTimestamp")
        assert shown == {"LastModifiedTimestamp": str(NOW_MS // 1000 + 7)}
        for label, left in (("a", ["b"]), ("b", None)):
            assert (await client.json("RemovePermission", QueueUrl="work", Label=label)).json == {}
            policy = await policy_of(client)
            assert (policy and [each["Sid"] for each in policy["Statement"]]) == left

    run(test)


def test_a_permission_is_added_to_the_policy_of_the_owner() -> None:
    async def test(client: Client) -> None:
        own = {"Version": "2012-10-17", "Id": "mine", "Statement": statement(Sid="own", Effect="Deny")}
        await client.queue(Policy=json.dumps(own))
        await add(client)
        policy = await policy_of(client)
        assert (policy["Version"], policy["Id"]) == ("2012-10-17", "mine")
        assert [each["Sid"] for each in policy["Statement"]] == ["own", "a"]

    run(test)


def test_labels() -> None:
    async def test(client: Client) -> None:
        await client.queue()
        await add(client)
        assert (await add(client)).status == 200  # the very same once more
        assert len((await policy_of(client))["Statement"]) == 1
        again = await add(client, Actions=["ReceiveMessage"])
        assert again.error == parameter_error("Value a for parameter Label is invalid. Reason: Already exists.")
        assert (await add(client, Label="x" * 80)).status == 200
        for label in ("x" * 81, "a b", "ä", "a.b"):
            assert (await add(client, Label=label)).error == parameter_error(
                f"Value {label} for parameter Label is invalid. Reason: Can only include alphanumeric characters, "
                "hyphens, or underscores. 1 to 80 in length"
            )
        for missing in (None, ""):
            assert (await add(client, Label=missing)).error == (
                400,
                "MissingParameter",
                "The request must contain the parameter Label.",
            )

    run(test)


def test_labels_that_are_not_there() -> None:
    async def test(client: Client) -> None:
        await client.queue()
        without = await client.json("RemovePermission", QueueUrl="work", Label="b")
        assert without.error == parameter_error("Value b for parameter Label is invalid. Reason: can't find label.")
        await add(client)
        other = await client.json("RemovePermission", QueueUrl="work", Label="b")
        assert other.error == parameter_error(
            "Value b for parameter Label is invalid. Reason: can't find label on existing policy."
        )
        assert (await client.json("RemovePermission", QueueUrl="work")).error[1] == "MissingParameter"

    run(test)


@pytest.mark.parametrize(
    ("actions", "error"),
    [
        (None, (400, "MissingParameter", "The request must contain the parameter Actions.")),
        ([], (400, "MissingParameter", "The request must contain the parameter Actions.")),
        (["SendMessage"] * 8, (403, "OverLimit", "8 Actions were found, maximum allowed is 7.")),
        *(
            (
                ["SendMessage", name],
                parameter_error(
                    f"Value SQS:{name} for parameter ActionName is invalid. Reason: Only the queue owner is allowed to "
                    "invoke this action."
                ),
            )
            for name in ("CreateQueue", "RemovePermission", "SetQueueAttributes", "TagQueue", "StartMessageMoveTask")
        ),
        *(
            (
                [name],
                parameter_error(
                    f"Value SQS:{name} for parameter ActionName is invalid. Reason: Please refer to the appropriate "
                    "WSDL for a list of valid actions."
                ),
            )
            for name in ("SendMessageBatch", "sendmessage", "SQS:SendMessage", "")
        ),
    ],
)
def test_actions_that_cannot_be_permitted(actions: list[str] | None, error: tuple[int, str, str]) -> None:
    async def test(client: Client) -> None:
        await client.queue()
        assert (await add(client, Actions=actions)).error == error
        assert await policy_of(client) is None

    run(test)


@pytest.mark.parametrize(
    ("accounts", "shown"), [(None, ""), ([], ""), ([ACCOUNT, "12345EXAMPLE"], "12345EXAMPLE"), (["1", "*"], "1, *")]
)
def test_accounts_that_cannot_be(accounts: list[str] | None, shown: str) -> None:
    async def test(client: Client) -> None:
        await client.queue()
        assert (await add(client, AWSAccountIds=accounts)).error == parameter_error(
            f"Value [{shown}] for parameter PrincipalId is invalid. Reason: Unable to verify."
        )

    run(test)


def test_permissions_that_are_added_at_the_same_time() -> None:
    async def test(client: Client) -> None:
        await client.queue()
        before = client.queues.by_name["work"].info
        await add(client)
        find = client.queues.find
        # This broker has not heard of the change of another one yet.
        client.queues.find = lambda name: before  # type: ignore[method-assign]
        late = await add(client, Label="b")
        assert late.status == 503  # which clients try again
        client.queues.find = find  # type: ignore[method-assign]
        assert [each["Sid"] for each in (await policy_of(client))["Statement"]] == ["a"]
        assert (await add(client, Label="b")).status == 200
        assert [each["Sid"] for each in (await policy_of(client))["Statement"]] == ["a", "b"]

    run(test)


def test_twenty_permissions() -> None:
    async def test(client: Client) -> None:
        await client.queue()
        for number in range(20):
            assert (await add(client, Label=f"l{number}")).status == 200
        one_more = await add(client, Label="one-more")
        assert one_more.error == (403, "OverLimit", "21 Statements were found, maximum allowed is 20.")

    run(test)


def test_permissions_have_room_for_so_much() -> None:
    async def test(client: Client) -> None:
        await client.queue()
        many = [f"{number:012}" for number in range(250)]
        error = (403, "OverLimit", "Submitted policy is over max allowed size.")
        assert (await add(client, AWSAccountIds=many)).error == error

    run(test)


# -- the attribute


def statement(**more: object) -> dict[str, object]:
    return {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": arn("work"), **more}


def test_a_policy_is_shown_as_it_was_set() -> None:
    async def test(client: Client) -> None:
        text = json.dumps({"Version": "2012-10-17", "Statement": [statement()]}, indent=2)
        url = await client.queue(Policy=text)
        assert await attributes(client, url, "Policy") == {"Policy": text}
        await change(client, url, Policy="")
        assert await attributes(client, url, "Policy") == {}

    run(test)


@pytest.mark.parametrize(
    "value",
    [
        "no json",
        "[]",
        "{}",
        "5",
        '{"Version":"2012-10-17","Statement":[]}',
        '{"Version":"2012-10-17","Statement":["x"]}',
        '{"Version":"2012-10-17","Statement":[{}]}',
        '{"Version":"2012-10-17","Statement":[{"Effect":"Perhaps"}]}',
        '{"Version":"2026-01-01","Statement":[{"Effect":"Allow"}]}',
        '{"Nonsense":1,"Statement":[{"Effect":"Allow"}]}',
        "[" * 5000,
    ],
)
def test_policies_that_are_refused(value: str) -> None:
    async def test(client: Client) -> None:
        assert await refusals(client, await client.queue(), "new", {"Policy": value}) == [value_error("Policy")] * 2

    run(test)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (
            {"Condition": {"StringNearly": {"aws:username": "x"}}},
            "StringNearly is no condition operator that is supported",
        ),
        ({"Condition": {"StringLike": {"aws:TagKeys": "x"}}}, "aws:TagKeys is no condition key that is supported"),
        ({"Action": "s3:GetObject"}, "s3:GetObject is no action of SQS"),
        ({"Principal": {"AWS": "bob"}}, "bob is no principal"),
    ],
)
def test_statements_that_the_broker_cannot_evaluate_are_refused(more: dict[str, object], reason: str) -> None:
    async def test(client: Client) -> None:
        value = json.dumps({"Version": "2012-10-17", "Statement": [statement(), statement(**more)]})
        error = value_error("Policy", f"{reason}.")
        assert await refusals(client, await client.queue(), "new", {"Policy": value}) == [error] * 2

    run(test)


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ([statement()] * 21, "21 statements were found in the submitted policy, max allowed is 20"),
        (
            [statement(Action=["sqs:SendMessage"] * 10)],
            "10 actions were found in a statement from the submitted policy, max allowed is 7",
        ),
        ([statement(Sid="x" * 8200)], "Submitted policy is over max allowed size."),
    ],
)
def test_policies_that_are_too_long(statements: list[dict[str, object]], message: str) -> None:
    async def test(client: Client) -> None:
        value = json.dumps({"Version": "2012-10-17", "Statement": statements})
        url = await client.queue()
        assert await refusals(client, url, "new", {"Policy": value}) == [(403, "OverLimit", message)] * 2

    run(test)
