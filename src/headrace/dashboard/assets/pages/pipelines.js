/** The list of pipelines. */
import { html } from "../core/html.js";
import { ago, count, ms, perSecond } from "../core/format.js";
import { to } from "../core/router.js";
import { Badge, StateBadge } from "../components/badge.js";
import { PageHead } from "../components/page.js";
import { Empty } from "../components/states.js";
import { ListTable } from "../components/table.js";

const COLUMNS = [
  { key: "name", label: "Pipeline", name: true, sort: "name", cell: (row) => html`<a href=${to("pipelines", row.name)}>${row.name}</a>` },
  { key: "state", label: "State", sort: "state", cell: (row) => html`<${StateBadge} state=${row.state} />` },
  { key: "rows", label: "Rows", end: true, sort: "rows_per_s", cell: (row) => perSecond(row.rows_per_s) },
  { key: "lag", label: "Lag", end: true, sort: "lag", cell: (row) => count(row.lag) },
  { key: "batch", label: "Batch time", end: true, sort: "batch_ms", cell: (row) => ms(row.batch_ms) },
  { key: "dead", label: "Dead letters", end: true, sort: "dead_letters", cell: (row) => (row.dead_letters ? html`<${Badge} tone="crit">${count(row.dead_letters)}<//>` : "0") },
  { key: "restarts", label: "Restarts", end: true, phone: false, sort: "restarts", cell: (row) => count(row.restarts) },
  { key: "reported", label: "Reported", end: true, phone: false, sort: "reported_ms", cell: (row) => ago(row.reported_ms) },
];

export function PipelinesPage() {
  return html`<${PageHead} title="Pipelines" note="Topics through Spark into topics, tables and databases." />
    <${ListTable} path="/pipelines" caption="Pipelines" search="Search pipelines" sort="name" columns=${COLUMNS} rowKey=${(row) => row.name}
      trail=${{ after: "rows", label: "Rows, live", value: (row) => row.rows_per_s }}
      empty=${html`<${Empty} icon="pipelines" title="No pipeline has reported yet" command="headrace pipeline init orders.toml && headrace pipeline run orders.toml">
        A pipeline reports to the broker while it runs, and appears here within five seconds.
      <//>`} />`;
}
