/** The first page: is all well, how much flows, and what is behind. */
import { html } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { bytes, bytesParts, bytesPerSecond, count, duration, ms, perSecond, plural, short } from "../core/format.js";
import { to } from "../core/router.js";
import { Badge, StateBadge, Trend } from "../components/badge.js";
import { Chart } from "../components/chart.js";
import { Prose } from "../components/code.js";
import { Icon } from "../components/icons.js";
import { useTitle } from "../components/page.js";
import { Card, Meter, Stats } from "../components/stat.js";
import { Empty, joinCommand, Loaded } from "../components/states.js";
import { DataTable } from "../components/table.js";

export function OverviewPage() {
  useTitle("Overview");
  const overview = useResource("/overview", { live: "overview" });
  return html`<h1 class="visually-hidden">Overview</h1>
    <${Loaded} resource=${overview}>${(data) => html`<${Overview} data=${data} />`}<//>`;
}

function Overview({ data }) {
  return html`<${Health} health=${data.health} />
    <${Totals} data=${data} />
    <div class="grid-2">
      <${Chart} title="Messages" history=${data.history} format=${perSecond} series=${[{ name: "messages_in_per_s", label: "in" }, { name: "messages_out_per_s", label: "out" }]} />
      <${Chart} title="Bytes" history=${data.history} format=${bytesPerSecond} steps="binary" series=${[{ name: "bytes_in_per_s", label: "in" }, { name: "bytes_out_per_s", label: "out" }]} />
      <${Chart} title="Produce latency" history=${data.history} format=${ms} series=${[{ name: "produce_p50_ms", label: "p50" }, { name: "produce_p99_ms", label: "p99" }]} />
      <${Chart} title="Fetch latency" history=${data.history} format=${ms} series=${[{ name: "fetch_p50_ms", label: "p50" }, { name: "fetch_p99_ms", label: "p99" }]} />
    </div>
    <div class="grid-2">
      <${WorstGroups} groups=${data.worst_groups ?? []} />
      <${OldestQueues} queues=${data.queues ?? []} />
      <${Brokers} brokers=${data.brokers ?? []} />
      <${Disks} disks=${data.disks ?? []} />
      <${Pipelines} />
    </div>`;
}

const ICONS = { ok: "check", warning: "warning", critical: "critical", info: "info" };

export function Health({ health }) {
  if (!health) return null;
  const problems = health.problems ?? [];
  return html`<section class=${`health ${health.status}`} aria-label="Health">
    <div class="health-head"><span class="health-icon"><${Icon} name=${ICONS[health.status] ?? "info"} /></span>
      <p class="health-sentence" role="status">${health.sentence}</p></div>
    ${problems.length > 0 &&
    html`<ul class="problems">
      ${problems.map((each) => html`<${Problem} key=${`${each.id} ${each.subject}`} problem=${each} />`)}
    </ul>`}
  </section>`;
}

function Problem({ problem }) {
  const tone = { critical: "crit", warning: "warn" }[problem.severity] ?? "info";
  return html`<li class="problem">
    <${Badge} tone=${tone}>${problem.severity}<//>
    <div><p>${problem.link ? html`<a href=${problem.link}>${problem.sentence}</a>` : problem.sentence}</p>
      ${problem.advice && html`<p class="advice"><${Prose} text=${problem.advice} /></p>`}</div>
  </li>`;
}

function Totals({ data }) {
  const totals = data.totals ?? {};
  const [inValue, inUnit] = bytesParts(totals.bytes_in_per_s);
  const [outValue, outUnit] = bytesParts(totals.bytes_out_per_s);
  const replication = (data.under_replicated ?? 0) + (data.offline ?? 0);
  return html`<${Stats} label="Now" items=${[
    { label: "Messages in", value: short(totals.messages_in_per_s), unit: "/s", note: `${inValue} ${inUnit}/s` },
    { label: "Messages out", value: short(totals.messages_out_per_s), unit: "/s", note: `${outValue} ${outUnit}/s` },
    { label: "Produce p99", value: ms(totals.produce_p99_ms), note: `p50 ${ms(totals.produce_p50_ms)}` },
    { label: "Fetch p99", value: ms(totals.fetch_p99_ms), note: `p50 ${ms(totals.fetch_p50_ms)}` },
    { label: "Topics", value: count(totals.topics), note: plural(totals.partitions, "partition") },
    { label: "Groups", value: count(totals.groups), note: plural(totals.queues, "queue") },
    { label: "Connections", value: count(totals.connections), note: `${short(totals.requests_per_s)} requests/s` },
    { label: "Not in sync", value: count(replication), tone: data.offline ? "crit" : data.under_replicated ? "warn" : "", note: data.offline ? `${count(data.offline)} offline` : "partitions" },
  ]} />`;
}

function WorstGroups({ groups }) {
  return html`<${Card} title="Groups behind" note="by seconds behind" end=${html`<a class="small" href=${`${to("groups")}?sort=lag_seconds&order=desc`}>All groups</a>`}>
    <${DataTable} caption="Groups behind" rows=${groups} rowKey=${(row) => row.group}
      empty=${html`<${Empty} icon="groups" title="No group yet" command=${joinCommand("my-group", "TOPIC")}>A group appears when a consumer commits an offset.<//>`}
      columns=${[
        { key: "group", label: "Group", name: true, cell: (row) => html`<a class="truncate" href=${to("groups", row.group)}>${row.group}</a>` },
        { key: "seconds", label: "Behind", end: true, cell: (row) => duration(row.lag_seconds) },
        { key: "lag", label: "Messages", end: true, cell: (row) => count(row.lag_messages) },
        { key: "trend", label: "Trend", end: true, cell: (row) => html`<${Trend} trend=${row.trend} />` },
      ]} />
  <//>`;
}

function OldestQueues({ queues }) {
  return html`<${Card} title="Queues" note="by age of the oldest message" end=${html`<a class="small" href=${`${to("queues")}?sort=oldest_age_s&order=desc`}>All queues</a>`}>
    <${DataTable} caption="Queues" rows=${queues} rowKey=${(row) => row.queue}
      empty=${html`<${Empty} icon="queues" title="No queue yet" command="headrace queue create jobs">Create one here or with any SQS client.<//>`}
      columns=${[
        { key: "queue", label: "Queue", name: true, cell: (row) => html`<a class="truncate" href=${to("queues", row.queue)}>${row.queue}</a>` },
        { key: "age", label: "Oldest", end: true, cell: (row) => duration(row.oldest_age_s) },
        { key: "visible", label: "Visible", end: true, cell: (row) => count(row.visible) },
        { key: "flight", label: "In flight", end: true, phone: false, cell: (row) => count(row.in_flight) },
        { key: "dead", label: "Dead letters", end: true, cell: (row) => (row.dead_letters ? html`<${Badge} tone="crit">${count(row.dead_letters)}<//>` : "0") },
      ]} />
  <//>`;
}

function Brokers({ brokers }) {
  return html`<${Card} title="Brokers" end=${html`<a class="small" href=${to("cluster")}>Cluster</a>`}>
    <${DataTable} caption="Brokers" rows=${brokers} rowKey=${(row) => row.broker_id}
      columns=${[
        { key: "id", label: "Broker", name: true, cell: (row) => html`<span class="row">${row.broker_id}${row.is_controller && html`<${Badge} tone="info">controller<//>`}</span>` },
        { key: "state", label: "State", cell: (row) => html`<${StateBadge} state=${row.is_draining ? "draining" : row.state} />` },
        { key: "leaders", label: "Leads", end: true, cell: (row) => count(row.leaders) },
        { key: "partitions", label: "Partitions", end: true, cell: (row) => count(row.partitions) },
      ]} />
  <//>`;
}

function Disks({ disks }) {
  return html`<${Card} title="Disks">
    <${DataTable} caption="Disks" rows=${disks} rowKey=${(row) => `${row.broker_id} ${row.path}`}
      columns=${[
        { key: "path", label: "Disk", name: true, cell: (row) => html`<div>Broker ${row.broker_id}</div><div class="tiny muted mono truncate" title=${row.path}>${row.path}</div>` },
        { key: "use", label: "Used", wide: true, cell: (row) => html`<${DiskUse} disk=${row} />` },
        { key: "full", label: "Full in", end: true, cell: (row) => (row.full_in_s === null || row.full_in_s === undefined ? html`<span class="muted">not at this rate</span>` : duration(row.full_in_s)) },
      ]} />
  <//>`;
}

export function DiskUse({ disk }) {
  const used = disk.total_bytes ? 1 - disk.free_bytes / disk.total_bytes : 0;
  const tone = used > 0.95 ? "crit" : used > 0.85 ? "warn" : "";
  return html`<div class="disk-use"><${Meter} share=${used} label=${`${Math.round(used * 100)} % used`} tone=${tone} />
    <span class="tiny muted">${bytes(disk.free_bytes)} free of ${bytes(disk.total_bytes)}</span></div>`;
}

function Pipelines() {
  const found = useResource("/pipelines", { query: { per_page: 5, sort: "reported_ms", order: "desc" } });
  const pipelines = found.data?.items ?? [];
  if (!pipelines.length) return null;
  return html`<${Card} title="Pipelines" end=${html`<a class="small" href=${to("pipelines")}>All pipelines</a>`}>
    <${DataTable} caption="Pipelines" rows=${pipelines} rowKey=${(row) => row.name}
      columns=${[
        { key: "name", label: "Pipeline", name: true, cell: (row) => html`<a href=${to("pipelines", row.name)}>${row.name}</a>` },
        { key: "state", label: "State", cell: (row) => html`<${StateBadge} state=${row.state} />` },
        { key: "rows", label: "Rows", end: true, cell: (row) => perSecond(row.rows_per_s) },
        { key: "dead", label: "Dead letters", end: true, cell: (row) => count(row.dead_letters) },
      ]} />
  <//>`;
}
