/** Clients that are connected, and the metrics that they send. */
import { html } from "../core/html.js";
import { ago, bytesPerSecond, count, perSecond } from "../core/format.js";
import { Badge } from "../components/badge.js";
import { PageHead } from "../components/page.js";
import { Empty } from "../components/states.js";
import { ListTable } from "../components/table.js";

const software = (row) => [row.software_name ?? row.software, row.software_version].filter(Boolean).join(" ");

const COLUMNS = [
  { key: "client", label: "Client", name: true, sort: "client_id", cell: (row) => html`<div>${row.client_id || "no client id"}</div><div class="tiny muted">${software(row) || row.kind || ""}</div>` },
  { key: "host", label: "Address", sort: "host", cell: (row) => html`<code>${row.host ?? row.address}</code>` },
  { key: "user", label: "User", cell: (row) => row.user ?? row.principal ?? html`<span class="muted">anonymous</span>` },
  { key: "listener", label: "Listener", phone: false, cell: (row) => html`<${Badge}>${row.listener ?? "–"}<//>` },
  { key: "connections", label: "Connections", end: true, cell: (row) => count(row.connections ?? 1) },
  { key: "requests", label: "Requests", end: true, cell: (row) => (row.requests_per_s !== undefined ? perSecond(row.requests_per_s) : count(row.requests)) },
  { key: "bytes", label: "In", end: true, phone: false, cell: (row) => bytesPerSecond(row.bytes_in_per_s) },
  { key: "since", label: "Since", end: true, cell: (row) => ago(row.connected_ms ?? row.since_ms) },
];

export function ClientsPage() {
  return html`<${PageHead} title="Clients" note="Connections to this broker, and the metrics that clients send (KIP-714)." />
    <${ListTable} path="/clients" caption="Clients" search="Search clients" sort="client_id" columns=${COLUMNS} rowKey=${(row) => row.id ?? `${row.client_id} ${row.host} ${row.port ?? ""}`}
      empty=${html`<${Empty} icon="clients" title="No client is connected" command="headrace consume orders">Connect any Kafka client to this broker.<//>`} />`;
}
