"""The files of the dashboard in memory, with their digests, compressed once.

About half a MiB: all files of `assets/` but notes and licences, which are for readers of the package.
"""

import gzip
import hashlib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "assets"
PAGE = "index.html"

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
"""By suffix; a file with another suffix is not served."""
_COMPRESSED = (".css", ".html", ".js", ".svg")
_PLACE = "<!-- modules -->"
"""Its place in the page gets the list of all modules: a browser fetches them at once, not one import after another."""


@dataclass(frozen=True, slots=True)
class Asset:
    content: bytes
    gzipped: bytes | None
    etag: str
    media_type: str


@dataclass(frozen=True, slots=True)
class AssetFolder:
    digest: str
    """Of all files, in hexadecimal digits."""
    page: Asset
    files: dict[str, Asset]
    """By path below the folder, with slashes."""


def load_assets(prefix: str, folder: Path = FOLDER) -> AssetFolder:
    """Read the folder. `prefix` is the address under which `DIGEST/NAME` is served, with a slash at its end."""
    contents = {
        each.relative_to(folder).as_posix(): each.read_bytes()
        for each in sorted(folder.rglob("*"))
        if each.is_file() and each.suffix in MEDIA_TYPES
    }
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    version = digest.hexdigest()[:16]
    page = _page(contents.pop(PAGE).decode(), f"{prefix}{version}/", tuple(contents))
    files = {name: _asset(name, content) for name, content in contents.items()}
    return AssetFolder(version, _asset(PAGE, page.encode()), files)


def _page(text: str, base: str, names: tuple[str, ...]) -> str:
    modules = [name for name in names if name.endswith(".js") and name != "boot.js"]
    links = "\n    ".join(f'<link rel="modulepreload" href="{base}{name}" />' for name in modules)
    return text.replace(_PLACE, links).replace("{assets}/", base)


def _asset(name: str, content: bytes) -> Asset:
    suffix = Path(name).suffix
    gzipped = gzip.compress(content, 6, mtime=0) if suffix in _COMPRESSED else None
    return Asset(content, gzipped, f'"{hashlib.sha256(content).hexdigest()[:16]}"', MEDIA_TYPES[suffix])
