"""StartMessageMoveTask, CancelMessageMoveTask and ListMessageMoveTasks."""

from base64 import urlsafe_b64encode
from typing import Any

import msgspec
import pytest

from headrace.queues.api import Filter

from .asking import Error, arn, parameter_error, redrive
from .fake import NOW_MS, Answer, Client, run


def not_found(parameter: str) -> Error:
    message = f"The resource that you specified for the {parameter} parameter doesn't exist."
    return 404, "ResourceNotFoundException", message


def malformed(parameter: str) -> Error:
    return parameter_error(
        f"You must use this format to specify the {parameter}: "
        "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
    )


MALFORMED = ["work", "arn:aws:sqs:us-east-1:dead", f"{arn('dead')}:x", "arn:aws:sqs:::dead", "http://x/dead"]
ELSEWHERE = [
    arn("none"),
    arn("dead", account="111122223333"),
    arn("dead", region="eu-west-1"),
    arn("dead").replace(":sqs:", ":sns:"),
]


async def queues(client: Client) -> None:
    await client.queue("dead")
    await client.queue("work", RedrivePolicy=redrive("dead"))


async def start(client: Client, **more: Any) -> Answer:
    return await client.json("StartMessageMoveTask", **{"SourceArn": arn("dead"), **more})


def test_a_task_from_its_start_to_its_end() -> None:
    async def test(client: Client) -> None:
        await queues(client)
        started = await start(client, DestinationArn=arn("work"), MaxNumberOfMessagesPerSecond=50)
        handle = started.json["TaskHandle"]
        assert client.queues.asked[-1] == ("start_move", Filter())
        assert (await client.json("ListMessageMoveTasks", SourceArn=arn("dead"))).json == {
            "Results": [
                {
                    "TaskHandle": handle,
                    "Status": "RUNNING",
                    "SourceArn": arn("dead"),
                    "DestinationArn": arn("work"),
                    "MaxNumberOfMessagesPerSecond": 50,
                    "ApproximateNumberOfMessagesMoved": 1,
                    "ApproximateNumberOfMessagesToMove": 7,
                    "StartedTimestamp": NOW_MS,
                }
            ]
        }
        cancelled = await client.json("CancelMessageMoveTask", TaskHandle=handle)
        assert cancelled.json == {"ApproximateNumberOfMessagesMoved": 5}
        (shown,) = (await client.json("ListMessageMoveTasks", SourceArn=arn("dead"))).json["Results"]
        assert shown["Status"] == "CANCELLED"
        assert "TaskHandle" not in shown
        again = await client.json("CancelMessageMoveTask", TaskHandle=handle)
        assert again.error == parameter_error("Only active tasks can be cancelled.")

    run(test)


def test_a_task_without_a_destination() -> None:
    async def test(client: Client) -> None:
        await queues(client)
        assert (await start(client)).status == 200
        (shown,) = (await client.json("ListMessageMoveTasks", SourceArn=arn("dead"))).json["Results"]
        assert not {"DestinationArn", "MaxNumberOfMessagesPerSecond", "FailureReason"} & shown.keys()

    run(test)


def test_one_task_at_a_time() -> None:
    async def test(client: Client) -> None:
        await queues(client)
        running = parameter_error(
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
        )
        handle = (await start(client)).json["TaskHandle"]
        assert (await start(client)).error == running
        client.queues.tasks[0] = msgspec.structs.replace(client.queues.tasks[0], status="CANCELLING")
        assert (await start(client)).error == running
        client.queues.tasks[0] = msgspec.structs.replace(client.queues.tasks[0], status="RUNNING")
        await client.json("CancelMessageMoveTask", TaskHandle=handle)
        assert (await start(client)).status == 200

    run(test)


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_arns(text: str) -> None:
    async def test(client: Client) -> None:
        await queues(client)
        assert (await start(client, SourceArn=text)).error == malformed("SourceArn")
        assert (await start(client, DestinationArn=text)).error == malformed("DestinationArn")
        assert (await client.json("ListMessageMoveTasks", SourceArn=text)).error == malformed("SourceArn")
        assert (await client.query("ListMessageMoveTasks", {"SourceArn": text})).error == malformed("SourceArn")

    run(test)


@pytest.mark.parametrize("text", ELSEWHERE)
def test_arns_of_queues_that_are_not_here(text: str) -> None:
    async def test(client: Client) -> None:
        await queues(client)
        assert (await start(client, SourceArn=text)).error == not_found("SourceArn")
        assert (await start(client, DestinationArn=text)).error == not_found("DestinationArn")
        answer = await client.json("ListMessageMoveTasks", SourceArn=text)
        assert answer.error == not_found("SourceArn")
        assert answer.json["__type"] == "com.amazonaws.sqs#ResourceNotFoundException"

    run(test)


def test_sources_and_destinations() -> None:
    async def test(client: Client) -> None:
        await queues(client)
        await client.queue("line.fifo")
        assert (await client.json("StartMessageMoveTask")).error == (
            400,
            "MissingParameter",
            "The request must contain the parameter SourceArn.",
        )
        assert (await start(client, SourceArn=arn("work"))).error == parameter_error(
            "Source queue must be configured as a Dead Letter Queue."
        )
        assert (await start(client, DestinationArn=arn("dead"))).error == parameter_error(
            "Source queue arn and destination queue arn cannot be the same."
        )
        assert (await start(client, DestinationArn=arn("line.fifo"))).error == parameter_error(
            "The source queue and destination queue must be of the same queue type."
        )

    run(test)


def test_the_rate_of_a_task() -> None:
    async def test(client: Client) -> None:
        await queues(client)
        for rate in (0, -1, 501):
            assert (await start(client, MaxNumberOfMessagesPerSecond=rate)).error == parameter_error(
                "Value for parameter MaxNumberOfMessagesPerSecond is invalid. Reason: You must enter a number that's "
                "between 1 and 500."
            )
        for rate in (1, 500):
            handle = (await start(client, MaxNumberOfMessagesPerSecond=rate)).json["TaskHandle"]
            assert client.queues.tasks[0].per_second == rate
            await client.json("CancelMessageMoveTask", TaskHandle=handle)

    run(test)


def test_the_latest_tasks() -> None:
    async def test(client: Client) -> None:
        await queues(client)
        assert (await client.json("ListMessageMoveTasks", SourceArn=arn("dead"))).json == {"Results": []}
        for _ in range(3):
            handle = (await start(client)).json["TaskHandle"]
            await client.json("CancelMessageMoveTask", TaskHandle=handle)
        for given, expected in (({}, 1), ({"MaxResults": 2}, 2), ({"MaxResults": 10}, 3)):
            found = await client.json("ListMessageMoveTasks", SourceArn=arn("dead"), **given)
            assert len(found.json["Results"]) == expected
        for most in (0, 11):
            wrong = await client.json("ListMessageMoveTasks", SourceArn=arn("dead"), MaxResults=most)
            assert wrong.error == parameter_error(
                "Value for parameter MaxResults is invalid. Reason: You must enter a number that's between 1 and 10."
            )

    run(test)


def test_why_a_task_failed() -> None:
    async def test(client: Client) -> None:
        await queues(client)
        await client.queue("gone")
        await start(client, DestinationArn=arn("gone"))
        (task,) = client.queues.tasks

        async def reason(failure: str) -> str:
            client.queues.tasks[0] = msgspec.structs.replace(task, status="FAILED", failure=failure)
            (shown,) = (await client.json("ListMessageMoveTasks", SourceArn=arn("dead"))).json["Results"]
            assert shown["Status"] == "FAILED"
            return str(shown["FailureReason"])

        assert await reason("the disk is full") == "the disk is full"
        await client.json("DeleteQueue", QueueUrl="gone")
        assert await reason("there is no queue gone") == "AWS.SimpleQueueService.NonExistentQueue"

    run(test)


def handle_of(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("handle", "error"),
    [
        *(
            (text, parameter_error("Value for parameter TaskHandle is invalid."))
            for text in ("foobared", "?", "ü", handle_of("no separator"), handle_of("id|dead"), handle_of(arn("dead")))
        ),
        (handle_of(f"id|{arn('none')}"), not_found("SourceArn")),
        (handle_of(f"id|{arn('dead')}"), (404, "ResourceNotFoundException", "Task does not exist.")),
    ],
)
def test_handles_that_are_no_handles(handle: str, error: Error) -> None:
    async def test(client: Client) -> None:
        await queues(client)
        assert (await client.json("CancelMessageMoveTask", TaskHandle=handle)).error == error
        for without in ({}, {"TaskHandle": ""}):
            answer = await client.json("CancelMessageMoveTask", **without)
            assert answer.error == (400, "MissingParameter", "The request must contain the parameter TaskHandle.")

    run(test)
