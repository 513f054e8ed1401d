/** Clients that are connected, what they use of their quotas, and the metrics that they push to the brokers (KIP-714). */
import { html } from "../core/html.js";
import { part } from "../core/api.js";
import { bytes, bytesPerSecond, coarse, count, DASH, duration, perSecond, short } from "../core/format.js";
import { useResource } from "../core/resource.js";
import { to } from "../core/router.js";
import { Badge } from "../components/badge.js";
import { PageHead } from "../components/page.js";
import { Card, Facts } from "../components/stat.js";
import { Empty, Loaded } from "../components/states.js";
import { DataTable, ListTable } from "../components/table.js";
import { Tabs } from "../components/tabs.js";

const heard = (row) => `${coarse(row.heard_ms_ago / 1000)} ago`;

const CONNECTED = [
  {
    key: "client",
    label: "Client",
    name: true,
    sort: "client_id",
    cell: (row) => html`<div class="truncate" title=${row.client_id}>${row.client_id || "no client id"}</div><div class="tiny muted">${row.software}</div>`,
  },
  { key: "address", label: "Address", sort: "address", cell: (row) => html`<code class="nowrap">${row.address}</code>` },
  { key: "principal", label: "User", sort: "principal", cell: (row) => html`<span class="nowrap">${row.principal.replace(/^User:/, "")}</span>` },
  { key: "listener", label: "Listener", phone: false, sort: "listener", cell: (row) => row.listener },
  { key: "connections", label: "Connections", end: true, sort: "connections", cell: (row) => count(row.connections) },
  { key: "requests", label: "Requests", end: true, sort: "requests", cell: (row) => count(row.requests) },
  { key: "received", label: "Received", end: true, sort: "received_bytes", cell: (row) => bytes(row.received_bytes) },
  { key: "sent", label: "Sent", end: true, sort: "sent_bytes", cell: (row) => bytes(row.sent_bytes) },
  { key: "brokers", label: "Broker", end: true, phone: false, cell: (row) => row.brokers.join(", ") },
  { key: "metrics", label: "Metrics", cell: (row) => (row.client_instance_ids.length ? html`<a href=${to("clients", row.client_instance_ids[0])}>shown</a>` : html`<span class="muted">none</span>`) },
];

const PUSHING = [
  {
    key: "client",
    label: "Client",
    name: true,
    sort: "client_id",
    cell: (row) => html`<a href=${to("clients", row.client_instance_id)}>${row.client_id || "no client id"}</a><div class="tiny muted">${row.software}</div>`,
  },
  { key: "address", label: "Address", sort: "address", cell: (row) => html`<code>${row.address}</code>` },
  { key: "principal", label: "User", sort: "principal", cell: (row) => row.principal },
  { key: "broker", label: "Broker", end: true, sort: "broker_id", cell: (row) => row.broker_id },
  { key: "values", label: "Metrics", end: true, sort: "values", cell: (row) => count(row.values) },
  { key: "pushes", label: "Pushes", end: true, sort: "pushes", cell: (row) => count(row.pushes) },
  { key: "bytes", label: "Pushed", end: true, phone: false, sort: "pushed_bytes", cell: (row) => bytes(row.pushed_bytes) },
  { key: "heard", label: "Heard", end: true, sort: "heard_ms_ago", cell: heard },
];

const QUOTAS = {
  producer_byte_rate: ["Produce", bytesPerSecond],
  consumer_byte_rate: ["Fetch", bytesPerSecond],
  request_percentage: ["Request time", (value) => `${short(value)} %`],
  controller_mutation_rate: ["Topic changes", perSecond],
  connection_creation_rate: ["Connections", perSecond],
  sqs_request_rate: ["SQS requests", perSecond],
  sqs_message_rate: ["SQS messages", perSecond],
};
const amount = (row, value) => (value === null ? DASH : (QUOTAS[row.quota]?.[1] ?? short)(value));
const whose = (row) => (row.client_id ? `${row.client_id}${row.is_prefix ? "…" : ""}` : "every client");
const quotaNote = (row) => (Object.keys(row.parts).length ? "of all brokers together" : "of each broker");

const USE = [
  { key: "client", label: "Client", name: true, sort: "client_id", cell: (row) => html`<div class="truncate" title=${row.client_id}>${whose(row)}</div>` },
  { key: "user", label: "User", sort: "user", cell: (row) => row.user.replace(/^User:/, "") || html`<span class="muted">every user</span>` },
  { key: "quota", label: "Quota", sort: "quota", cell: (row) => html`<span class="nowrap" title=${row.quota}>${QUOTAS[row.quota]?.[0] ?? row.quota}</span>` },
  { key: "used", label: "Used", end: true, sort: "used", cell: (row) => html`<span class="nowrap">${amount(row, row.used)}</span>` },
  {
    key: "limit",
    label: "Limit",
    end: true,
    sort: "limit",
    cell: (row) => (row.limit === null ? html`<span class="muted">none</span>` : html`<span class="nowrap" title=${quotaNote(row)}>${amount(row, row.limit)}</span>`),
  },
  { key: "share", label: "Share", end: true, sort: "share", cell: (row) => (row.limit === null ? DASH : html`<${Badge} tone=${row.share >= 0.95 ? "warn" : ""}>${short(row.share * 100)} %<//>`) },
  {
    key: "throttled",
    label: "Throttled",
    end: true,
    sort: "throttled_ms",
    cell: (row) => (row.throttled_count ? html`<span class="nowrap">${count(row.throttled_count)}×, ${duration(row.throttled_ms / 1000)}</span>` : html`<span class="muted">never</span>`),
  },
  { key: "brokers", label: "Broker", end: true, phone: false, cell: (row) => row.brokers.join(", ") },
];

const TABS = [
  { key: "connected", label: "Connected", href: to("clients") },
  { key: "quotas", label: "Quotas", href: to("clients", "quotas") },
  { key: "metrics", label: "Their metrics", href: to("clients", "metrics") },
];

const LISTS = {
  connected: () => html`<${ListTable} path="/clients" caption="Clients" search="Search clients" sort="client_id" columns=${CONNECTED}
    rowKey=${(row) => [row.client_id, row.address, row.software, row.principal, row.listener].join(" ")}
    empty=${html`<${Empty} icon="clients" title="No client is connected" command="headrace consume orders">Producers, consumers and admin tools appear here while they are connected.<//>`} />`,
  quotas: () => html`<${ListTable} path="/quotas/use" caption="Use of quotas" search="Search clients" sort="share" order="desc" columns=${USE}
    rowKey=${(row) => [row.quota, row.user, row.client_id, row.is_prefix].join(" ")}
    empty=${html`<${Empty} icon="clients" title="No client uses anything now" command="headrace quota set --client-id reports --consume 10MB">Clients appear here while they use something; those without a quota from the first look at this page on.<//>`} />`,
  metrics: () => html`<${ListTable} path="/client-metrics" caption="Clients that send metrics" search="Search clients" sort="client_id" columns=${PUSHING} rowKey=${(row) => row.client_instance_id}
    empty=${html`<${Empty} icon="clients" title="No client sends metrics yet" command="headrace clients subscribe everything">Clients with KIP-714, such as librdkafka and the Java client, ask which metrics to send and appear here.<//>`} />`,
};

export function ClientsPage({ tab = "connected" }) {
  return html`<${PageHead} title="Clients" note="Programs that are connected to the brokers over Kafka's protocol, with what they send and receive." />
    <${Tabs} label="Clients" current=${tab} tabs=${TABS} />
    ${LISTS[tab]()}`;
}

export const PushingPage = () => html`<${ClientsPage} tab="metrics" />`;
export const QuotasPage = () => html`<${ClientsPage} tab="quotas" />`;

export function ClientPage({ name }) {
  const client = useResource(`/client-metrics/${part(name)}`);
  return html`<${Loaded} resource=${client}>${(data) => html`<${Client} client=${data.client} metrics=${data.metrics} />`}<//>`;
}

const labels = (row) => Object.entries(row.attributes).map(([key, value]) => `${key}=${value}`).join(", ");

function Client({ client, metrics }) {
  return html`<${PageHead} title=${client.client_id || "Client"} note=${`${client.software}, heard ${heard(client)}`} />
    <${Card} title="Client" body>
      <${Facts} rows=${[
        ["Instance id", html`<code>${client.client_instance_id}</code>`],
        ["Address", html`<code>${client.address}</code>`],
        ["User", client.principal],
        ["Broker", client.broker_id],
        ["Pushes", `${count(client.pushes)}, one every ${coarse(client.interval_ms / 1000)}, ${bytes(client.pushed_bytes)} in all`],
        ["Dropped", client.dropped ? `${count(client.dropped)} values beyond the limit` : undefined],
      ]} />
    <//>
    <${Card} title="Metrics" note="As of the last push">
      <${DataTable} caption="Metrics" rows=${metrics} rowKey=${(row) => `${row.name} ${labels(row)}`}
        empty=${html`<${Empty} icon="clock" title="No metric yet">The client pushes again within ${coarse(client.interval_ms / 1000)}.<//>`}
        columns=${[
          { key: "name", label: "Metric", wide: true, cell: (row) => html`<code>${row.name}</code>` },
          { key: "labels", label: "Of", wide: true, cell: (row) => html`<span class="tiny muted mono">${labels(row)}</span>` },
          { key: "value", label: "Value", end: true, cell: (row) => `${short(row.value)} ${row.unit}`.trim() },
        ]} />
    <//>`;
}
