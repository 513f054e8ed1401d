"""`headrace` in this process: for tests of what a command does, where starting a process for each would be most of it.

That each command also runs as a process is shown by `tests/package/test_installed.py`.
"""

from subprocess import CompletedProcess

from typer.testing import CliRunner

from headrace.cli.errors import CommandFailed
from headrace.cli.main import app
from headrace.model.errors import HeadraceError


def headrace(*arguments: str, text: str = "", **environment: str) -> CompletedProcess[str]:
    """Run a command with `text` on its standard input; errors become a line and a code as in `headrace.cli.main`."""
    result = CliRunner().invoke(app, arguments, input=text, env=environment, prog_name="headrace")
    code, stderr = result.exit_code, result.stderr
    if isinstance(result.exception, HeadraceError):
        code = 1 if isinstance(result.exception, CommandFailed) else 2
        stderr += f"headrace: {result.exception}\n"
    elif result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return CompletedProcess(arguments, code, result.stdout, stderr)
