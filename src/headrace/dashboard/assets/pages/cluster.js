/** The cluster: brokers with what they lead, drain and reassignments with progress, controller and metadata store, settings. */
import { html, useState } from "../core/html.js";
import { del, part, post } from "../core/api.js";
import { bytes, bytesPerSecond, count, duration, ms, plural } from "../core/format.js";
import { useResource } from "../core/resource.js";
import { useRights } from "../core/rights.js";
import { to } from "../core/router.js";
import { Badge, StateBadge } from "../components/badge.js";
import { Confirm } from "../components/dialog.js";
import { Icon } from "../components/icons.js";
import { PageHead } from "../components/page.js";
import { Card, Meter, Stats } from "../components/stat.js";
import { Loaded } from "../components/states.js";
import { DataTable } from "../components/table.js";
import { Tabs } from "../components/tabs.js";
import { toast } from "../components/toast.js";
import { DiskUse } from "./overview.js";
import { Reassignments } from "./reassignments.js";
import { SettingsTable } from "./settings_table.js";

export function ClusterPage({ tab = "brokers" }) {
  const cluster = useResource("/cluster", { live: "cluster" });
  return html`<${Loaded} resource=${cluster}>${(data) => html`<${Cluster} tab=${tab} cluster=${data} reload=${cluster.reload} />`}<//>`;
}

function Cluster({ tab, cluster, reload }) {
  const brokers = cluster.brokers ?? [];
  const store = cluster.store ?? {};
  const down = brokers.filter((each) => !["active", "starting", "stopping"].includes(String(each.state).toLowerCase()));
  return html`<${PageHead} title="Cluster" note=${cluster.cluster_id && html`<span class="mono">${cluster.cluster_id}</span>`} />
    <${Stats} label="Now" items=${[
      { label: "Brokers", value: `${brokers.length - down.length} of ${brokers.length}`, tone: down.length ? "crit" : "", note: down.length ? `${down.map((each) => each.broker_id).join(", ")} down` : "all up" },
      { label: "Controller", value: cluster.controller >= 0 ? `Broker ${cluster.controller}` : "None", tone: cluster.controller >= 0 ? "" : "crit" },
      { label: "Metadata store", value: store.kind ?? "–", tone: store.ok === false ? "crit" : "", note: store.ok === false ? "does not answer" : store.latency_ms === null || store.latency_ms === undefined ? "answers" : `answers in ${ms(store.latency_ms)}` },
      { label: "Not in sync", value: count((cluster.under_replicated ?? 0) + (cluster.offline ?? 0)), unit: "partitions", tone: cluster.offline ? "crit" : cluster.under_replicated ? "warn" : "", note: cluster.offline ? `${count(cluster.offline)} offline` : undefined },
      { label: "Feature level", value: count(cluster.feature_level) },
    ]} />
    <${Tabs} label="Parts of the cluster" current=${tab} tabs=${[
      { key: "brokers", label: "Brokers", href: to("cluster"), count: count(brokers.length) },
      { key: "reassignments", label: "Reassignments", href: to("cluster", "reassignments"), count: cluster.reassigning || undefined },
      { key: "settings", label: "Settings", href: to("cluster", "settings") },
    ]} />
    ${tab === "brokers" && html`<${Brokers} brokers=${brokers} reload=${reload} />`}
    ${tab === "reassignments" && html`<${Reassignments} brokers=${brokers} />`}
    ${tab === "settings" && html`<${SettingsTable} path="/cluster/settings" subject="all brokers" />`}`;
}

const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(value)} %`);

function Brokers({ brokers, reload }) {
  const { may } = useRights();
  const [chosen, setChosen] = useState(null);
  const most = Math.max(1, ...brokers.map((each) => each.partitions ?? 0));
  const drainable = may("alter_cluster") && brokers.length > 1;
  return html`<${Card} title="Brokers">
    <${DataTable} caption="Brokers" rows=${brokers} rowKey=${(row) => row.broker_id}
      columns=${[
        { key: "id", label: "Broker", name: true, cell: (row) => html`<div class="row nowrap"><span>${row.broker_id}</span>${row.is_controller && html`<${Badge} tone="info">controller<//>`}</div><div class="tiny muted mono truncate">${row.endpoint}</div>` },
        { key: "state", label: "State", cell: (row) => html`<span title=${row.problem}><${StateBadge} state=${row.is_draining ? "draining" : row.state} /></span>` },
        { key: "leaders", label: "Leads", end: true, cell: (row) => count(row.leaders) },
        { key: "partitions", label: "Partitions", wide: true, cell: (row) => html`<div class="disk-use"><${Meter} share=${(row.partitions ?? 0) / most} label=${`${row.partitions} partitions`} /><span class="tiny muted num">${count(row.partitions)}</span></div>` },
        { key: "disk", label: "Disk", wide: true, cell: (row) => (row.disks.length ? html`<${DiskUse} disk=${row.disks[0]} />` : "–") },
        { key: "in", label: "In", end: true, phone: false, cell: (row) => bytesPerSecond(row.bytes_in_per_s) },
        { key: "out", label: "Out", end: true, phone: false, cell: (row) => bytesPerSecond(row.bytes_out_per_s) },
        { key: "cpu", label: "CPU", end: true, cell: (row) => percent(row.cpu_percent) },
        { key: "memory", label: "Memory", end: true, phone: false, cell: (row) => bytes(row.memory_bytes) },
        { key: "uptime", label: "Up for", end: true, phone: false, cell: (row) => duration(row.uptime_s) },
        { key: "version", label: "Version", end: true, phone: false, cell: (row) => row.version ?? "–" },
        ...(drainable ? [{ key: "drain", label: "Drain", hidden: true, end: true, cell: (row) => html`<${DrainButton} row=${row} choose=${setChosen} reload=${reload} />` }] : []),
      ]} />
    ${chosen &&
    html`<${Confirm} title=${`Drain broker ${chosen.broker_id}?`} action="Drain the broker" onClose=${() => setChosen(null)}
      consequences=${[
        `Its ${plural(chosen.partitions ?? 0, "partition")} move to the other ${plural(brokers.length - 1, "broker")}, ten at a time.`,
        "Clients are served all the time; leaders change once for each partition.",
        "When it is stopped afterwards, it leaves the cluster. You can end the drain before.",
      ]}
      run=${async () => {
        await post(`/cluster/brokers/${part(chosen.broker_id)}/drain`);
        toast(`Draining broker ${chosen.broker_id}.`);
        reload();
      }} />`}
  <//>`;
}

function DrainButton({ row, choose, reload }) {
  if (!row.is_draining) return html`<button type="button" class="button small" aria-label=${`Drain broker ${row.broker_id}`} onClick=${() => choose(row)}>Drain</button>`;
  async function end() {
    try {
      await del(`/cluster/brokers/${part(row.broker_id)}/drain`);
      toast(`Broker ${row.broker_id} takes partitions again.`);
      reload();
    } catch (error) {
      toast(error.message, "crit");
    }
  }
  return html`<button type="button" class="button small" onClick=${end}><${Icon} name="close" />End the drain</button>`;
}
