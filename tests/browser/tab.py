"""A tab of a real browser that notes what a page must not do: errors, violations of its policy, requests elsewhere."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ConsoleMessage, Page, Request, expect

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
]
PATIENCE_MS = 30_000
"""How long a condition may take; the usual time is far below a second."""
SERIOUS = ("serious", "critical")

expect.set_options(timeout=PATIENCE_MS)

_WITHOUT_MORE_ROWS = {"exclude": [["tbody tr:nth-child(n+4)"]]}
_NOTE_VIOLATIONS = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
window.alerted = [];
window.alert = (text) => window.alerted.push(text);
"""


class Tab:
    """One page. `problems` has what went wrong, in words; a test fails if it has any at its end."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.problems: list[str] = []
        self.ignores_failed_requests = False
        """Whether failed requests are expected."""
        page.set_default_timeout(PATIENCE_MS)
        page.add_init_script(_NOTE_VIOLATIONS)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"error in the page: {error}"))
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        is_failed_request = "Failed to load resource" in message.text or "net::ERR" in message.text
        if not (self.ignores_failed_requests and is_failed_request):
            self.problems.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _request(self, request: Request) -> None:
        if urlsplit(request.url).scheme in ("data", "blob"):
            return
        if not request.url.startswith(f"{self.base}/"):
            self.problems.append(f"a request to another host: {request.url}")

    def open(self, path: str) -> Page:
        """Go to a view, and wait until its data is there."""
        self.page.goto(self.base + path)
        self.settled()
        return self.page

    def settled(self) -> None:
        """Wait until no skeleton stands in for data."""
        expect(self.page.locator("main")).to_be_visible()
        expect(self.page.locator(".skeleton")).to_have_count(0)

    def checked(self) -> list[str]:
        """The problems so far, with violations of the Content Security Policy and scripts that ran."""
        violations, alerted = self.page.evaluate("[window.violations ?? [], window.alerted ?? []]")
        self.problems += [f"policy: {each}" for each in violations]
        self.problems += [f"a payload ran as a script: {each}" for each in alerted]
        return self.problems

    def close(self) -> None:
        """Check and close it, before the broker ends that it is connected to."""
        if not self.page.is_closed():
            self.checked()
            self.page.context.close()

    def inaccessible(self, rules: Sequence[str] = ()) -> list[str]:
        """The serious and critical findings of axe, by all of its rules or by these; rows after the third are alike."""
        options = {"runOnly": list(rules)} if rules else None
        results: dict[str, Any] = Axe().run(self.page, context=_WITHOUT_MORE_ROWS, options=options).response
        return [
            f"{each['impact']} {each['id']}: {node['html'][:160]} {' '.join(node['failureSummary'].split())[:240]}"
            for each in results["violations"]
            if each["impact"] in SERIOUS
            for node in each["nodes"]
        ]

    def width(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth"))
