/** The list of links: clusters whose topics are mirrored here, how far behind they are, and their last takeover. */
import { html } from "../core/html.js";
import { ago, bytesPerSecond, count, duration, ms } from "../core/format.js";
import { to } from "../core/router.js";
import { Badge, StateBadge } from "../components/badge.js";
import { PageHead } from "../components/page.js";
import { Empty } from "../components/states.js";
import { ListTable } from "../components/table.js";

export const CREATE = "headrace link create eu --bootstrap eu-1:9092 --topics 'orders.*' --prefix eu.";

/** "caught up", or for how long a mirror has not had everything: what a failover would lose. */
export const behind = (row) => (row.lag_seconds === 0 ? html`<span class="muted">caught up</span>` : duration(row.lag_seconds));

/** "5 min ago, in 320 ms" */
export function takeover(row) {
  if (row.last_takeover_ms === null) return html`<span class="muted">none</span>`;
  const took = row.last_takeover_took_ms === null ? "" : `, in ${ms(row.last_takeover_took_ms)}`;
  return `${ago(row.last_takeover_ms)}${took}`;
}

const COLUMNS = [
  { key: "name", label: "Link", name: true, sort: "name", cell: (row) => html`<a href=${to("links", row.name)}>${row.name}</a>` },
  { key: "state", label: "State", sort: "state", cell: (row) => html`<span title=${row.problem}><${StateBadge} state=${row.state} /></span>` },
  { key: "source", label: "Source", cell: (row) => html`<span class="truncate mono tiny" title=${`Cluster ${row.source_cluster_id}`}>${row.bootstrap.join(", ")}</span>` },
  {
    key: "topics",
    label: "Mirror topics",
    end: true,
    sort: "topic_count",
    cell: (row) => html`${count(row.topic_count)} ${row.faulted_count > 0 && html`<${Badge} tone="crit">${count(row.faulted_count)} faulted<//>`}`,
  },
  { key: "lag", label: "Lag", end: true, sort: "lag_messages", cell: (row) => count(row.lag_messages) },
  { key: "seconds", label: "Behind (RPO)", end: true, sort: "lag_seconds", cell: behind },
  { key: "rate", label: "Copied", end: true, sort: "copied_per_s", cell: (row) => bytesPerSecond(row.copied_per_s) },
  { key: "takeover", label: "Takeover (RTO)", end: true, phone: false, sort: "last_takeover_ms", cell: takeover },
];

export function LinksPage() {
  return html`<${PageHead} title="Links" note="Clusters whose topics are mirrored here. Behind is what a failover would lose now." />
    <${ListTable} path="/link-figures" caption="Links" search="Search links" sort="name" columns=${COLUMNS} rowKey=${(row) => row.name}
      empty=${html`<${Empty} icon="links" title="No link yet" command=${CREATE}>A link mirrors topics of another cluster here, byte for byte, so that consumers and producers can move here when it is lost.<//>`} />`;
}
