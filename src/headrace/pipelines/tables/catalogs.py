"""The catalog of an Iceberg table: in the table's own directory, or an external one.

An external catalog is the address of an Iceberg REST catalog (`http://catalog:8181`), or the name of a catalog in
pyiceberg's configuration (`.pyiceberg.yaml`, or `PYICEBERG_CATALOG__<NAME>__URI` and the like), which also has the
credentials. The files stay in the directory, so the catalog's server and all readers must have access to it.

The directory has a note with its external catalog: files that a catalog does not know are removed as uncommitted, which
must not happen with the wrong catalog.
"""

from pathlib import Path

import msgspec
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import RESTError
from pyiceberg.typedef import Identifier
from requests.exceptions import RequestException
from sqlalchemy.exc import SQLAlchemyError

from headrace.pipelines.tables.store import CATALOG_NOTE, HIDDEN, TableError

NAMESPACE = "headrace"
"""Default namespace of tables."""
OWN = "catalog.db"
_FORMAT = 1
CATALOG_ERRORS = (SQLAlchemyError, RESTError, RequestException)


class CatalogNote(msgspec.Struct, frozen=True):
    """The note in a directory with its catalog and table name."""

    catalog: str
    table: str
    format: int = _FORMAT


def identifier_of(name: str) -> Identifier:
    """`lake.revenue` is the table `revenue` of the namespace `lake`."""
    *namespace, table = name.split(".")
    return (*namespace, table) if namespace else (NAMESPACE, table)


def flat_identifier_of(name: str) -> Identifier:
    """Like `identifier_of` for SQLite catalogs, which have no nested namespaces: `eu.lake.revenue` is in `eu_lake`."""
    *namespace, table = identifier_of(name)
    return ("_".join(namespace), table)


def read_catalog_note(root: Path) -> CatalogNote | None:
    """The note of a directory with an external catalog; None without one."""
    try:
        found = msgspec.json.decode(_note(root).read_bytes(), type=CatalogNote)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise TableError(f"{_note(root)} cannot be read: {error}") from None
    if found.format > _FORMAT:
        raise TableError(
            f"{root} was written by a newer Headrace (format {found.format}, this one reads {_FORMAT}): use that one"
        )
    return found


def check_catalog(root: Path, catalog: str, table: str) -> CatalogNote | None:
    """The note to write before a directory is used with a catalog; `TableError` if it belongs to another."""
    note = read_catalog_note(root)
    if catalog and (root / OWN).exists():
        raise TableError(f"{root} has its catalog in the directory: leave the catalog out, or use another directory")
    wanted = CatalogNote(catalog, table) if catalog else None
    if note is not None and note != wanted:
        raise TableError(
            f"{root} is the table {note.table} of the catalog {note.catalog}: name both, or use another directory"
        )
    return wanted if note is None else None


def encode_catalog_note(root: Path, note: CatalogNote) -> tuple[Path, bytes]:
    """The path of the note, and its content."""
    return _note(root), msgspec.json.encode(note)


def _note(root: Path) -> Path:
    return root / HIDDEN / CATALOG_NOTE


def open_catalog(root: Path, catalog: str, warehouse: str, file_io: str, *, read_only: bool) -> Catalog:
    """Open the catalog; `file_io` is the class that writes its files."""
    given = {"py-io-impl": file_io}
    if not catalog:
        return SqlCatalog(
            NAMESPACE,
            uri=f"sqlite:///{root / OWN}",
            warehouse=warehouse,
            init_catalog_tables=str(not read_only).lower(),
            **given,
        )
    try:
        if catalog.startswith(("http://", "https://")):
            return load_catalog(NAMESPACE, type="rest", uri=catalog, **given)
        return load_catalog(catalog, **given)
    except (*CATALOG_ERRORS, ValueError, TypeError) as error:
        raise TableError(f"the Iceberg catalog {catalog} cannot be used: {_first_line(error)}") from None


def close_catalog(catalog: Catalog) -> None:
    if isinstance(catalog, SqlCatalog):
        catalog.engine.dispose()
    else:
        catalog.close()


def tables_in(catalog: Catalog) -> list[Identifier]:
    """All tables of a catalog, in any namespace."""
    found: list[Identifier] = []
    waiting: list[Identifier] = [*catalog.list_namespaces()]
    seen: set[Identifier] = set()
    while waiting:
        namespace = waiting.pop()
        if namespace not in seen:
            seen.add(namespace)
            found += catalog.list_tables(namespace)
            waiting += catalog.list_namespaces(namespace)
    return [*dict.fromkeys(found)]


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
