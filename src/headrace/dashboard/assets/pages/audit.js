/** The audit log: who did what, and with which outcome. */
import { html } from "../core/html.js";
import { time } from "../core/format.js";
import { Badge } from "../components/badge.js";
import { Empty } from "../components/states.js";
import { ListTable } from "../components/table.js";

const failed = (row) => (row.error && row.error !== "NONE") || ["denied", "failed", "failure"].includes(String(row.outcome ?? row.result ?? "").toLowerCase());

const COLUMNS = [
  { key: "time", label: "Time", sort: "time_ms", cell: (row) => html`<time class="nowrap">${time(row.time_ms ?? row.at_ms ?? row.time)}</time>` },
  { key: "principal", label: "Who", name: true, cell: (row) => html`<div class="truncate">${row.principal || "anonymous"}</div><div class="tiny muted mono">${row.host ?? ""}</div>` },
  { key: "event", label: "What", wide: true, cell: (row) => html`<code>${row.action ?? row.request ?? row.api ?? row.event ?? row.operation}</code>` },
  { key: "resource", label: "Resource", wide: true, cell: (row) => html`<span class="row"><span class="muted">${String(row.resource_type ?? "").toLowerCase()}</span><code>${row.resource_name ?? ""}</code></span>` },
  { key: "outcome", label: "Outcome", cell: (row) => html`<${Badge} tone=${failed(row) ? "crit" : "ok"}>${String(row.outcome ?? row.result ?? row.error ?? "ok").toLowerCase().replace("none", "ok")}<//>` },
];

export function Audit() {
  return html`<${ListTable} path="/audit" caption="Audit log" search="Search the audit log" sort="" columns=${COLUMNS} rowKey=${(row, i) => row.id ?? row.offset ?? `${row.time_ms} ${row.principal} ${i}`}
    empty=${html`<${Empty} icon="security" title="No event yet" command="headrace serve --set audit.enable=true">Logins, denials and changes appear here once the audit log is on.<//>`} />`;
}
