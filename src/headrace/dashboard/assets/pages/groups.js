/** The list of groups: classic, consumer, share and streams groups. */
import { html } from "../core/html.js";
import { count, duration, plural } from "../core/format.js";
import { setQuery, to, usePlace } from "../core/router.js";
import { Badge, StateBadge, Trend } from "../components/badge.js";
import { Choice } from "../components/form.js";
import { PageHead } from "../components/page.js";
import { Empty, joinCommand } from "../components/states.js";
import { ListTable } from "../components/table.js";

export const typeOf = (group) => group.type ?? group.kind ?? "classic";

const COLUMNS = [
  { key: "group", label: "Group", name: true, sort: "group", cell: (row) => html`<a href=${to("groups", row.group)}>${row.group}</a>` },
  { key: "type", label: "Type", sort: "type", cell: (row) => html`<${Badge} tone=${typeOf(row) === "share" ? "info" : ""}>${typeOf(row)}<//>` },
  { key: "state", label: "State", sort: "state", cell: (row) => html`<${StateBadge} state=${row.state} />` },
  { key: "members", label: "Members", end: true, sort: "members", cell: (row) => count(row.members) },
  { key: "topics", label: "Topics", end: true, phone: false, cell: (row) => count(row.topic_count) },
  { key: "lag", label: "Lag", end: true, sort: "lag_messages", cell: (row) => count(row.lag_messages) },
  { key: "seconds", label: "Behind", end: true, sort: "lag_seconds", cell: (row) => (row.lag_seconds === 0 ? html`<span class="muted">caught up</span>` : duration(row.lag_seconds)) },
  { key: "trend", label: "Direction", end: true, cell: (row) => html`<${Trend} trend=${row.trend} />` },
];

const TYPES = [["", "All types"], ["classic", "Classic"], ["consumer", "Consumer"], ["share", "Share"], ["streams", "Streams"]];

export function GroupsPage() {
  const { query } = usePlace();
  const type = query.get("type") ?? "";
  return html`<${PageHead} title="Groups" note="Consumers that share the partitions of topics, and how far behind they are." />
    <${ListTable} path="/groups" caption="Groups" search="Search groups" sort="lag_seconds" order="desc" columns=${COLUMNS} rowKey=${(row) => row.group}
      query=${{ type: type || undefined }}
      trail=${{ after: "lag", label: "Lag, live", value: (row) => row.lag_messages }}
      filters=${html`<${Choice} label="Type" value=${type} options=${TYPES} onValue=${(value) => setQuery({ type: value, page: null })} />`}
      empty=${html`<${Empty} icon="groups" title="No group yet" command=${joinCommand("billing", "orders")}>A group appears when its first consumer joins or commits an offset.<//>`} />`;
}

/** "3 members of a classic group" */
export const describeGroup = (group, members) => `${plural(members, "member")} of a ${typeOf(group)} group`;
