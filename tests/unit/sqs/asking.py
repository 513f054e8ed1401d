"""Short forms for tests of actions on queues."""

import json

from .fake import ACCOUNT, Client

BASE = f"http://queues.test:9324/{ACCOUNT}"

Error = tuple[int, str, str]


def arn(queue: str, account: str = ACCOUNT, region: str = "us-east-1") -> str:
    return f"arn:aws:sqs:{region}:{account}:{queue}"


def redrive(queue: str, most: object = 3) -> str:
    return json.dumps({"deadLetterTargetArn": arn(queue), "maxReceiveCount": most})


async def attributes(client: Client, url: str, *names: str) -> dict[str, str]:
    answer = await client.json("GetQueueAttributes", QueueUrl=url, AttributeNames=list(names))
    assert answer.status == 200, answer
    return dict(answer.json.get("Attributes", {}))


async def change(client: Client, url: str, **values: str) -> None:
    answer = await client.json("SetQueueAttributes", QueueUrl=url, Attributes=values)
    assert answer.status == 200, answer


async def refusals(client: Client, url: str, new: str, values: dict[str, str]) -> list[Error]:
    """How a queue and a new one refuse attributes."""
    given = {"FifoQueue": "true", **values} if new.endswith(".fifo") else values
    created = await client.json("CreateQueue", QueueName=new, Attributes=given)
    changed = await client.json("SetQueueAttributes", QueueUrl=url, Attributes=values)
    assert new not in client.queues.by_name
    return [created.error, changed.error]


def parameter_error(message: str) -> Error:
    return 400, "InvalidParameterValue", message


def name_error(message: str) -> Error:
    return 400, "InvalidAttributeName", message


def value_error(name: str, reason: str = "") -> Error:
    return 400, "InvalidAttributeValue", f"Invalid value for the parameter {name}." + (reason and f" Reason: {reason}")
