"""moto's own tests of SQS, in its server mode, against a real `headrace serve` process.

    python interop/moto_suite.py [pytest arguments]

moto is a stand-in for AWS that others test with, so its tests say what people expect of SQS; some were checked against
AWS itself. They come with the source archive of moto, which pip downloads into `.cache/` and which is not part of this
project, and run in an environment of their own there, for moto needs much that nothing else here does. One line for
each test, a summary, and an exit code of 1 if a test failed that is not expected to.
"""

import socket
import subprocess
import sys
import tarfile
import venv
from collections.abc import Mapping
from pathlib import Path

from client_suite import Unavailable, run

_VERSION = "5.2.5"
_ROOT = Path(__file__).resolve().parent.parent
_CACHE = _ROOT / ".cache"
_ACCOUNT = "123456789012"
_PORT = 5000
"""Some tests know by heart where moto's server listens."""
_TESTS = ("tests/test_sqs/test_sqs.py", "tests/test_sqs/test_sqs_message_attributes.py")
_NEEDED = ("freezegun", "pytest", "pytest-timeout")

EXPECTED_FAILURES = {
    "test_change_message_visibility_on_unknown_receipt_handle": "compares the sentence; AWS says the receipt in it",
    "test_create_queue_with_different_attributes_fail": "sets FifoQueue to `tru`, which AWS and Headrace refuse",
    "test_create_fifo_queue_with_dlq": "sets FifoQueue to `false` on a standard queue, which AWS and Headrace refuse",
    "test_create_queues_in_multiple_region": "expects each region to have its own queues; a broker is one region",
    "test_delete_message_errors": "compares the sentence; AWS says the receipt in it",
    "test_send_messages_to_fifo_without_message_group_id": (
        "expects MissingParameter of a batch, for which AWS and Headrace say InvalidParameterValue"
    ),
    "test_message_with_attributes_invalid_datatype": "compares the sentence, which AWS has changed since",
    "test_message_with_invalid_attributes": "expects a name with `ö` to be refused, which AWS and Headrace take",
    "test_message_retention_period": "keeps messages for 3 seconds; AWS and Headrace allow 60 and more",
    "test_permissions": "expects policy version 2012-10-17; AWS and Headrace make one of 2008-10-17",
    "test_remove_permission_errors": "expects the text for a queue that has a policy; this one has none",
    "test_get_queue_attributes_template_response_validation": (
        "sets a policy for the resource `'$sqs_queue_arn'`, which is no ARN"
    ),
    "test_get_queue_attributes": "compares RedrivePolicy as text, with spaces; AWS and Headrace show it without",
    "test_message_delay_is_more_than_15_minutes": (
        "sends a MessageDeduplicationId to a standard queue, which AWS and Headrace refuse"
    ),
}
"""Test, without its parameters, to the reason why it cannot pass."""


def suite() -> Path:
    """The folder of the unpacked archive."""
    folder = _CACHE / f"moto-{_VERSION}"
    if not (folder / _TESTS[0]).exists():
        _CACHE.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "moto"]
        done = _done([*command, "--dest", str(_CACHE), f"moto=={_VERSION}"])
        archive = folder.with_name(folder.name + ".tar.gz")
        if not archive.exists():
            raise Unavailable(f"pip cannot download the source of moto {_VERSION}: {done.stderr.strip()[-200:]}")
        with tarfile.open(archive) as opened:
            opened.extractall(_CACHE, filter="data")
    return folder


def environment() -> Path:
    """The Python of an environment that has moto and boto3 as of `constraints.txt`."""
    folder = _CACHE / f"moto-{_VERSION}-venv"
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        venv.create(folder, with_pip=True, clear=True)
        constraints = ["--constraint", str(_ROOT / "constraints.txt")]
        done = _done([str(python), "-m", "pip", "install", "--quiet", *constraints, f"moto[sqs]=={_VERSION}", *_NEEDED])
        if done.returncode:
            raise Unavailable(f"pip cannot install moto {_VERSION}: {done.stderr.strip()[-200:]}")
        (folder / ".installed").touch()
    return python


def _done(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _surroundings(endpoint: str) -> Mapping[str, str]:
    return {
        "TEST_SERVER_MODE": "true",
        "TEST_SERVER_MODE_ENDPOINT": endpoint,
        "MOTO_CALL_RESET_API": "false",
        "HEADRACE_ACCOUNT": _ACCOUNT,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def main() -> int:
    try:
        folder, python = suite(), environment()
    except Unavailable as reason:
        print(f"moto's own tests are not run: {reason}.")
        return 0
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if probe.connect_ex(("127.0.0.1", _PORT)) == 0:
            print(f"moto's own tests are not run: they want port {_PORT}, which another program uses.")
            return 0
    print(f"{folder.name}: its tests of SQS against headrace serve", flush=True)
    return run(
        folder,
        [*_TESTS, "-p", "moto_plugin", *sys.argv[1:]],
        settings={
            "http.listen": f"127.0.0.1:{_PORT}",
            "sqs.account.id": _ACCOUNT,
            # moto lets a queue be created again at once.
            "sqs.recreate.wait.ms": 0,
        },
        environment=lambda _: _surroundings(f"http://localhost:{_PORT}"),
        expected_failures=EXPECTED_FAILURES,
        python=str(python),
    )


if __name__ == "__main__":
    sys.exit(main())
