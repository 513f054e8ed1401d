/** One group: lag over time, lag per partition, members with their assignment, and resetting offsets. */
import { html, useState } from "../core/html.js";
import { del, part } from "../core/api.js";
import { count, duration, plural, short } from "../core/format.js";
import { useResource } from "../core/resource.js";
import { useRights } from "../core/rights.js";
import { navigate, to } from "../core/router.js";
import { Badge, StateBadge, Trend } from "../components/badge.js";
import { Chart } from "../components/chart.js";
import { Confirm } from "../components/dialog.js";
import { Icon } from "../components/icons.js";
import { PageHead } from "../components/page.js";
import { Card, Stats } from "../components/stat.js";
import { Empty, joinCommand, Loaded } from "../components/states.js";
import { DataTable } from "../components/table.js";
import { Tabs } from "../components/tabs.js";
import { toast } from "../components/toast.js";
import { describeGroup, typeOf } from "./groups.js";
import { ResetDialog } from "./reset_offsets.js";

export function GroupPage({ name, tab = "partitions" }) {
  const group = useResource(`/groups/${part(name)}`, { live: `groups/${part(name)}` });
  return html`<${Loaded} resource=${group}>${(data) => html`<${Group} name=${name} tab=${tab} group=${data} reload=${group.reload} />`}<//>`;
}

function Group({ name, tab, group, reload }) {
  const [dialog, setDialog] = useState(null);
  const { canChange } = useRights();
  const members = group.members ?? [];
  const partitions = group.partitions ?? [];
  const isIdle = members.length === 0;
  return html`<${PageHead} title=${name} badges=${html`<${StateBadge} state=${group.state} /><${Badge} tone=${typeOf(group) === "share" ? "info" : ""}>${typeOf(group)}<//>`}
      note=${`${describeGroup(group, members.length)}, coordinated by broker ${group.coordinator}`}>
      ${canChange && html`<button type="button" class="button danger" disabled=${!isIdle} title=${isIdle ? "" : "Stop its consumers first"} onClick=${() => setDialog("delete")}><${Icon} name="trash" />Delete</button>
        <button type="button" class="button primary" onClick=${() => setDialog("reset")}><${Icon} name="undo" />Reset offsets</button>`}
    <//>
    <${Stats} label="Now" items=${[
      { label: "Behind", value: duration(group.lag_seconds), tone: group.lag_seconds > 60 ? "warn" : "", note: html`<${Trend} trend=${group.trend} withWord />` },
      { label: "Lag", value: short(group.lag_messages), unit: "messages" },
      { label: "Members", value: count(members.length) },
      { label: "Partitions", value: count(partitions.length), note: plural(new Set(partitions.map((each) => each.topic)).size, "topic") },
    ]} />
    ${group.history &&
    html`<div class="grid-2">
      <${Chart} title="Behind" history=${group.history} format=${duration} steps="clock" series=${[{ name: "lag_seconds", label: "seconds behind" }]} />
      <${Chart} title="Lag" history=${group.history} format=${short} series=${[{ name: "lag_messages", label: "messages" }]} />
    </div>`}
    <${Tabs} label="Parts of the group" current=${tab} tabs=${[
      { key: "partitions", label: "Partitions", href: to("groups", name), count: count(partitions.length) },
      { key: "members", label: "Members", href: to("groups", name, "members"), count: count(members.length) },
    ]} />
    ${tab === "members" ? html`<${Members} members=${members} name=${name} />` : html`<${Partitions} partitions=${partitions} name=${name} isShare=${typeOf(group) === "share"} />`}
    ${dialog === "reset" && html`<${ResetDialog} name=${name} group=${group} onClose=${() => setDialog(null)} onDone=${reload} />`}
    ${dialog === "delete" &&
    html`<${Confirm} title=${`Delete the group ${name}?`} action="Delete the group" danger onClose=${() => setDialog(null)}
      consequences=${[`Its offsets in ${plural(partitions.length, "partition")} are deleted.`, "Consumers that join again start where auto.offset.reset says.", "Messages are not touched."]}
      run=${async () => {
        await del(`/groups/${part(name)}`);
        toast(`Deleted the group ${name}.`);
        navigate(to("groups"));
      }} />`}`;
}

const offset = (value) => (value === null || value === undefined || value < 0 ? "–" : count(value));

function Partitions({ partitions, name, isShare }) {
  return html`<${Card} title="Lag per partition">
    <${DataTable} caption="Lag per partition" rows=${partitions} rowKey=${(row) => `${row.topic} ${row.partition}`}
      empty=${html`<${Empty} icon="groups" title="No offset committed yet" command=${`headrace group describe ${name}`}>Offsets appear here when consumers commit.<//>`}
      columns=${[
        { key: "topic", label: "Topic", name: true, cell: (row) => html`<a href=${to("topics", row.topic)}>${row.topic}</a>` },
        { key: "partition", label: "Partition", end: true, cell: (row) => row.partition },
        { key: "committed", label: isShare ? "Acknowledged up to" : "Committed", end: true, cell: (row) => (row.committed === null || row.committed < 0 ? html`<span class="muted">none</span>` : count(row.committed)) },
        { key: "end", label: "End", end: true, cell: (row) => offset(row.end_offset ?? row.end) },
        { key: "lag", label: "Lag", end: true, cell: (row) => count(row.lag_messages) },
        { key: "seconds", label: "Behind", end: true, cell: (row) => (row.lag_messages === 0 ? html`<span class="muted">caught up</span>` : duration(row.lag_seconds)) },
        ...(isShare ? [{ key: "flight", label: "In flight", end: true, cell: (row) => count(row.in_flight) }] : []),
        { key: "member", label: "Member", wide: true, cell: (row) => html`<code class="tiny cut key" title=${row.member_id ?? row.member}>${(row.member_id ?? row.member) || "none"}</code>` },
      ]} />
  <//>`;
}

function Members({ members, name }) {
  return html`<${Card} title="Members">
    <${DataTable} caption="Members" rows=${members} rowKey=${(row) => row.member_id ?? row.id}
      empty=${html`<${Empty} icon="groups" title="No member" command=${joinCommand(name, "TOPIC")}>The group's offsets are stored; its consumers are not running.<//>`}
      columns=${[
        { key: "client", label: "Client", name: true, cell: (row) => html`<div>${row.client_id || "no client id"}</div><div class="tiny muted mono truncate" title=${row.member_id ?? row.id}>${row.member_id ?? row.id}</div>` },
        { key: "instance", label: "Instance", cell: (row) => row.instance_id ?? html`<span class="muted">dynamic</span>` },
        { key: "host", label: "Host", cell: (row) => html`<code>${row.host}</code>` },
        { key: "assignment", label: "Assignment", wide: true, cell: (row) => html`<${Assignment} assignment=${row.assignment} />` },
      ]} />
  <//>`;
}

/** Partitions by topic, or a list of {topic, partition}. */
function Assignment({ assignment }) {
  const byTopic = Array.isArray(assignment)
    ? assignment.reduce((all, each) => ({ ...all, [each.topic]: [...(all[each.topic] ?? []), ...(each.partitions ?? [each.partition])] }), {})
    : (assignment ?? {});
  const topics = Object.entries(byTopic);
  if (!topics.length) return html`<span class="muted">nothing</span>`;
  return html`<div class="stack-s">${topics.map(([topic, numbers]) => html`<div class="small"><a href=${to("topics", topic)}>${topic}</a> <span class="muted num">${ranges(numbers)}</span></div>`)}</div>`;
}

/** [0, 1, 2, 5] as "0–2, 5" */
export function ranges(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const parts = [];
  for (const each of sorted) {
    const last = parts.at(-1);
    if (last && each === last[1] + 1) last[1] = each;
    else parts.push([each, each]);
  }
  return parts.map(([first, end]) => (first === end ? first : `${first}–${end}`)).join(", ");
}
