"""The errors of commands, with messages for the person at the terminal."""

from headrace.model.errors import HeadraceError


class CommandFailed(HeadraceError):
    """The command was understood and tried, and did not succeed. The message is one sentence; the exit code is 1."""


class BadArgument(HeadraceError):
    """An argument makes no sense. The message says what would; the exit code is 2."""
