"""The table of routes in `docs/api-http.md`: `python -m headrace.admin.reference docs/api-http.md` writes it."""

import sys
from pathlib import Path

from headrace.admin.resources import ALL_ROUTES
from headrace.admin.routes import PREFIX, AdminRoute

BEGIN, END = "<!-- routes: begin -->", "<!-- routes: end -->"
_HEAD = "| Route | What it does | Permission |\n|---|---|---|\n"


def route_table() -> str:
    """The rows of all routes, in the order of their paths."""
    ordered = sorted(ALL_ROUTES, key=lambda each: (each.plain_path.split("/"), _METHODS.index(each.method)))
    return _HEAD + "".join(map(_row, ordered))


_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


def _row(each: AdminRoute) -> str:
    own = ", or the user's own" if each.owner else ""
    summary = each.summary.replace("|", "\\|")
    return f"| `{each.method} {PREFIX}{each.plain_path}` | {summary} | {each.needs}{own} |\n"


def with_table(page: str) -> str:
    """The page with the table between its marks replaced."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{route_table()}\n{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text()))
