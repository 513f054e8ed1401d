"""What `headrace top` shows: the view, its order, its page, and the search. Changed by keys. Pure."""

from dataclasses import dataclass
from urllib.parse import urlencode

from headrace.cli.errors import BadArgument
from headrace.cli.top.views import NAMES, OVERVIEW, VIEWS, TopView

MAX_PER_PAGE = 500


@dataclass(slots=True)
class TopState:
    name: str = OVERVIEW
    search: str = ""
    sort: str = ""
    is_ascending: bool = False
    page: int = 1
    typed: str | None = None
    """What is typed after `/`; None while nothing is."""
    is_over: bool = False

    @property
    def view(self) -> TopView | None:
        """None for the overview."""
        return VIEWS.get(self.name)

    def sort_by(self, field: str) -> None:
        """`BadArgument` for a field that the view does not have."""
        if not field:
            return
        if self.view is None:
            raise BadArgument(f"--sort is for {', '.join(VIEWS)}")
        if field not in self.view.by_key:
            raise BadArgument(f"{self.name} cannot be sorted by {field}: {', '.join(self.view.by_key)}")
        self.sort = field
        self.is_ascending = field == self.view.name_key

    @property
    def sorted_by(self) -> str:
        return self.sort or (self.view.sort if self.view is not None else "")

    def query(self, per_page: int) -> str:
        """The query string of a view that the server pages."""
        return urlencode(
            {
                "sort": self.sorted_by,
                "order": "asc" if self.is_ascending else "desc",
                "search": self.search,
                "page": self.page,
                "per_page": max(1, min(per_page, MAX_PER_PAGE)),
            }
        )

    # -- keys

    def press(self, key: str) -> bool:
        """Follow a key; whether the figures have to be asked for again."""
        if self.typed is not None:
            return self._type(key)
        if key in ("q", "Q"):
            self.is_over = True
        elif key.isdecimal() and 1 <= int(key) <= len(NAMES):
            self._go(NAMES[int(key) - 1])
        elif key == "tab":
            self._go(NAMES[(NAMES.index(self.name) + 1) % len(NAMES)])
        elif key == "/":
            self.typed = self.search
            return False
        elif key == "page down":
            self.page += 1
        elif key == "page up":
            self.page = max(1, self.page - 1)
        elif key == "escape":
            self.search, self.page = "", 1
        elif key == "s" and self.view is not None:
            self._sort_next(self.view)
        elif key == "r":
            self.is_ascending, self.page = not self.is_ascending, 1
        else:
            return False
        return True

    def _go(self, name: str) -> None:
        self.name, self.sort, self.is_ascending, self.page = name, "", False, 1

    def _sort_next(self, view: TopView) -> None:
        keys = [*view.by_key]
        self.sort_by(keys[(keys.index(self.sorted_by) + 1) % len(keys)])
        self.page = 1

    def _type(self, key: str) -> bool:
        assert self.typed is not None
        if key == "enter":
            self.search, self.typed, self.page = self.typed, None, 1
            return True
        if key == "escape":
            self.typed = None
        elif key == "backspace":
            self.typed = self.typed[:-1]
        elif len(key) == 1 and key.isprintable():
            self.typed = (self.typed + key)[:200]
        return False
