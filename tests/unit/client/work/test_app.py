"""The client of an application by its name: what is found, and every mistake in words."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace import Client
from headrace.client.work.app import AppError, imported_files, load_client

Write = Callable[[str, str], int]

CLIENT = """
from headrace import Client
client = Client()
@client.handler("orders", group="billing")
def bill(order): ...
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a module into the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield lambda name, text: (tmp_path / f"{name}.py").write_text(text)
    for name in set(sys.modules) - before:
        del sys.modules[name]


def problem(target: str) -> str:
    with pytest.raises(AppError) as caught:
        load_client(target)
    return str(caught.value)


def test_a_client_and_a_function_that_makes_one(write: Write) -> None:
    write("shop_tasks", CLIENT + "def make(): return client\n")
    client = load_client("shop_tasks:client")
    assert isinstance(client, Client)
    assert load_client("shop_tasks:make") is client
    assert [Path(each).name for each in imported_files()] == ["shop_tasks.py"]


def test_a_client_for_asyncio(write: Write) -> None:
    write("shop_aio", CLIENT.replace("headrace import", "headrace.aio import").replace("def bill", "async def bill"))
    assert type(load_client("shop_aio:client")).__module__ == "headrace.client.aio"


@pytest.mark.parametrize("target", ["app", "app:", ":client"])
def test_a_name_has_two_parts(target: str) -> None:
    assert problem(target) == f"{target} is not MODULE:ATTRIBUTE: the client of app.py is app:client"


def test_a_module_that_there_is_not(write: Write) -> None:
    write("shop_works", CLIENT)
    text = problem("shop_work:client")
    assert text.startswith("there is no module shop_work in ")
    assert text.endswith("did you mean shop_works?")


def test_a_module_that_imports_what_there_is_not(write: Write) -> None:
    write("shop_broken", "import no_such_library\n")
    text = problem("shop_broken:client")
    assert text.startswith("shop_broken cannot be imported:\n")
    assert "shop_broken.py" in text
    assert text.endswith("ModuleNotFoundError: No module named 'no_such_library'")
    assert "importlib" not in text


def test_an_error_of_the_module_has_a_short_traceback(write: Write) -> None:
    write("shop_raises", "def total():\n    return 1 / 0\n\n\ntotal()\n")
    text = problem("shop_raises:client")
    assert "in total" in text
    assert text.endswith("ZeroDivisionError: division by zero")
    write("shop_syntax", "def (:\n")
    assert "SyntaxError" in problem("shop_syntax:client")
    with pytest.raises(AppError) as caught:
        load_client("shop_syntax:client")
    assert [Path(each).name for each in caught.value.files] == ["shop_syntax.py"]


def test_a_wrong_attribute_names_the_right_one(write: Write) -> None:
    write("shop_named", CLIENT + "number = 7\n")
    assert problem("shop_named:cleint") == "shop_named has no cleint: did you mean shop_named:client?"
    assert "shop_named:number is of the type int" in problem("shop_named:number")


def test_a_function_that_fails(write: Write) -> None:
    write("shop_maker", "def make():\n    raise RuntimeError('no settings')\n")
    text = problem("shop_maker:make")
    assert text.startswith("shop_maker:make() failed:\n")
    assert text.endswith("RuntimeError: no settings")


def test_a_client_without_handlers(write: Write) -> None:
    write("shop_empty", "from headrace import Client\nclient = Client()\n")
    assert problem("shop_empty:client").startswith("shop_empty:client has nothing to run: register")
