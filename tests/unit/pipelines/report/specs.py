"""A pipeline with two sources, two steps and two sinks."""

from pathlib import Path

from headrace.pipelines.spec.file import SpecFile
from headrace.pipelines.spec.model import Spec

TEXT = """
name = "revenue"

[sources.orders]
topic = "orders"
schema = "user STRING, amount DOUBLE"

[sources.users]
path = "users.parquet"
format = "parquet"

[[steps]]
name = "joined"
sql = "SELECT o.*, u.name FROM orders o JOIN users u ON o.user = u.id"

[[steps]]
name = "large"
sql = "SELECT * FROM joined WHERE amount > 100"

[sinks.all]
from = "joined"
topic = "enriched"

[sinks.best]
table = "best"
path = "tables"
"""


def revenue(folder: Path, text: str = TEXT) -> Spec:
    file = folder / "revenue.toml"
    file.write_text(text)
    return SpecFile(file, {}).spec
