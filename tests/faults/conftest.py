"""What tests of faults share with those of the clients: real broker processes and a client that sends any bytes."""

from tests.interop.fixtures import *  # noqa: F403
