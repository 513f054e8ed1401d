"""What moto's tests need of their surroundings, where the server is not moto's: loaded by `moto_suite.py`.

- The account is told by a setting, for there is no STS.
- moto's server forgets everything before each test; here the queues that a test leaves behind are deleted after it.
"""

import os
from collections.abc import Generator
from typing import Any

import boto3
import pytest

ACCOUNT = os.environ["HEADRACE_ACCOUNT"]
ENDPOINT = os.environ["TEST_SERVER_MODE_ENDPOINT"]


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> str | None:
    if fixturedef.argname != "account_id":
        return None
    fixturedef.cached_result = (ACCOUNT, fixturedef.cache_key(request), None)
    return ACCOUNT


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, Any, Any]:
    result = yield
    client = boto3.client(
        "sqs", endpoint_url=ENDPOINT, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    while urls := client.list_queues().get("QueueUrls"):
        for url in urls:
            client.delete_queue(QueueUrl=url)
    client.close()
    return result
