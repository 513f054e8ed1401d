/** One topic: rates, partitions, messages, consumers and settings. */
import { html, useState } from "../core/html.js";
import { del, part, post } from "../core/api.js";
import { bytes, bytesPerSecond, count, duration, perSecond, plural, pluralAre, short } from "../core/format.js";
import { useResource } from "../core/resource.js";
import { useRights } from "../core/rights.js";
import { navigate, to } from "../core/router.js";
import { Badge, StateBadge } from "../components/badge.js";
import { Chart } from "../components/chart.js";
import { Confirm, Dialog, useAction } from "../components/dialog.js";
import { TextField } from "../components/form.js";
import { Icon } from "../components/icons.js";
import { PageHead } from "../components/page.js";
import { Card, Stats } from "../components/stat.js";
import { Empty, ErrorNotice, joinCommand, Loaded } from "../components/states.js";
import { DataTable } from "../components/table.js";
import { Tabs } from "../components/tabs.js";
import { toast } from "../components/toast.js";
import { Messages } from "./topic_messages.js";
import { ProduceDialog } from "./produce.js";
import { SettingsTable } from "./settings_table.js";

export function TopicPage({ name, tab = "partitions" }) {
  const topic = useResource(`/topics/${part(name)}`, { live: `topics/${part(name)}` });
  return html`<${Loaded} resource=${topic}>${(data) => html`<${Topic} name=${name} tab=${tab} topic=${data} reload=${topic.reload} />`}<//>`;
}

function Topic({ name, tab, topic, reload }) {
  const [dialog, setDialog] = useState(null);
  const { canChange } = useRights();
  const close = () => setDialog(null);
  const href = (key) => to("topics", name, key);
  const partitions = topic.partitions ?? [];
  const tabs = [
    { key: "partitions", label: "Partitions", href: href(), count: count(partitions.length) },
    { key: "messages", label: "Messages", href: href("messages") },
    { key: "consumers", label: "Consumers", href: href("consumers"), count: topic.groups?.length },
    { key: "settings", label: "Settings", href: href("settings") },
  ];
  return html`<${PageHead} title=${name}
      badges=${html`${topic.is_internal && html`<${Badge}>internal<//>`}${topic.is_queue && html`<${Badge} tone="info">queue<//>`}${topic.offline > 0 && html`<${Badge} tone="crit">${topic.offline} offline<//>`}${topic.under_replicated > 0 && html`<${Badge} tone="warn">${topic.under_replicated} not in sync<//>`}<${SchemaLinks} topic=${name} />`}>
      ${topic.is_queue && html`<a class="button" href=${to("queues", name)}>Open as a queue</a>`}
      ${canChange && !topic.is_internal && html`<button type="button" class="button" onClick=${() => setDialog("grow")}><${Icon} name="plus" />Partitions</button>
        <button type="button" class="button danger" onClick=${() => setDialog("delete")}><${Icon} name="trash" />Delete</button>
        <button type="button" class="button primary" onClick=${() => setDialog("produce")}><${Icon} name="send" />Produce</button>`}
    <//>
    <${Tabs} label="Parts of the topic" current=${tab} tabs=${tabs} />
    ${tab === "messages" && html`<${Messages} topic=${name} partitions=${partitions.length} />`}
    ${tab === "consumers" && html`<${Consumers} topic=${name} groups=${topic.groups ?? []} />`}
    ${tab === "settings" && html`<${SettingsTable} path=${`/topics/${part(name)}/settings`} subject=${`topic ${name}`} />`}
    ${tab === "partitions" && html`<${Figures} topic=${topic} partitions=${partitions} /><${Partitions} partitions=${partitions} />`}
    ${dialog === "produce" && html`<${ProduceDialog} topic=${name} partitions=${partitions.length} onClose=${close} />`}
    ${dialog === "grow" && html`<${AddPartitions} topic=${name} now=${partitions.length} onClose=${close} onDone=${reload} />`}
    ${dialog === "delete" &&
    html`<${Confirm} title=${`Delete ${name}?`} action="Delete the topic" danger typed=${name} onClose=${close}
      consequences=${[
        `${pluralAre(topic.messages ?? total(partitions), "message")} deleted, in ${plural(partitions.length, "partition")} on all brokers.`,
        topic.groups?.length ? `${plural(topic.groups.length, "group loses its", "groups lose their")} offsets in it: ${topic.groups.map((each) => each.group).slice(0, 5).join(", ")}.` : "No group has offsets in it.",
        "This cannot be undone.",
      ]}
      run=${async () => {
        await del(`/topics/${part(name)}`);
        toast(`Deleted ${name}.`);
        navigate(to("topics"));
      }} />`}`;
}

const SUBJECTS = 100;

/** Links to the schemas of the topic's keys and values, if there are some. */
function SchemaLinks({ topic }) {
  const found = useResource("/subjects", { query: { search: topic, per_page: SUBJECTS }, pollMs: false });
  const own = (found.data?.items ?? []).filter((each) => each.topic === topic && each.subject !== topic);
  return own.map((each) => html`<a key=${each.subject} class="badge info" href=${to("schemas", each.subject)}>schema of ${each.subject.endsWith("-key") ? "keys" : "values"}</a>`);
}

const known = (value) => value !== null && value !== undefined && value >= 0;
const total = (partitions) => partitions.reduce((sum, each) => sum + (known(each.end_offset) ? each.end_offset - Math.max(0, each.start_offset ?? 0) : 0), 0);

/** The seconds of the group that is most behind; null if none is known. */
const mostBehind = (groups) => groups.reduce((most, each) => (known(each.lag_seconds) ? Math.max(most ?? 0, each.lag_seconds) : most), null);

function Figures({ topic, partitions }) {
  return html`<${Stats} label="Now" items=${[
      { label: "Messages", value: short(topic.messages ?? total(partitions)) },
      { label: "Size", value: bytes(topic.size_bytes) },
      { label: "In", value: short(topic.messages_in_per_s), unit: "/s", note: bytesPerSecond(topic.bytes_in_per_s) },
      { label: "Out", value: short(topic.messages_out_per_s), unit: "/s", note: bytesPerSecond(topic.bytes_out_per_s) },
      { label: "Replicas", value: count(topic.replicas ?? partitions[0]?.replicas.length) },
      { label: "Most behind", value: duration(mostBehind(topic.groups ?? [])), note: topic.groups?.length ? plural(topic.groups.length, "group") : "no group" },
    ]} />
    ${topic.history &&
    html`<div class="grid-2">
      <${Chart} title="Messages" history=${topic.history} format=${perSecond} series=${[{ name: "messages_in_per_s", label: "in" }, { name: "messages_out_per_s", label: "out" }]} />
      <${Chart} title="Bytes" history=${topic.history} format=${bytesPerSecond} steps="binary" series=${[{ name: "bytes_in_per_s", label: "in" }, { name: "bytes_out_per_s", label: "out" }]} />
    </div>`}`;
}

function Partitions({ partitions }) {
  return html`<${Card} title="Partitions">
    <${DataTable} caption="Partitions" rows=${partitions} rowKey=${(row) => row.partition}
      columns=${[
        { key: "partition", label: "Partition", name: true, cell: (row) => html`<span><span class="visually-hidden">Partition </span>${row.partition}</span>` },
        { key: "leader", label: "Leader", cell: (row) => (row.leader < 0 ? html`<${Badge} tone="crit">offline<//>` : html`<a href=${to("cluster")}>broker ${row.leader}</a>`) },
        { key: "replicas", label: "Replicas", cell: (row) => html`<${ReplicaList} row=${row} />` },
        { key: "start", label: "First offset", end: true, phone: false, cell: (row) => (known(row.start_offset) ? count(row.start_offset) : "–") },
        { key: "end", label: "End offset", end: true, cell: (row) => (known(row.end_offset) ? count(row.end_offset) : "–") },
        { key: "messages", label: "Messages", end: true, cell: (row) => (known(row.end_offset) ? count(row.end_offset - row.start_offset) : "–") },
        { key: "size", label: "Size", end: true, cell: (row) => bytes(row.size_bytes) },
      ]} />
  <//>`;
}

function ReplicaList({ row }) {
  const isr = new Set(row.isr);
  return html`<span class="row">${row.replicas.map((id) => html`<${Badge} tone=${isr.has(id) ? "ok" : "warn"} title=${isr.has(id) ? "in sync" : "not in sync"}>${id}${isr.has(id) ? "" : " behind"}<//>`)}</span>`;
}

function Consumers({ topic, groups }) {
  return html`<${Card} title="Consumers" note="Groups that have committed offsets in this topic">
    <${DataTable} caption="Consumers" rows=${groups} rowKey=${(row) => row.group}
      empty=${html`<${Empty} icon="groups" title="No group reads this topic" command=${joinCommand("my-group", topic)}>A group appears here when its consumers commit an offset.<//>`}
      columns=${[
        { key: "group", label: "Group", name: true, cell: (row) => html`<a href=${to("groups", row.group)}>${row.group}</a>` },
        { key: "type", label: "Type", cell: (row) => row.type ?? row.kind ?? "classic" },
        { key: "state", label: "State", cell: (row) => html`<${StateBadge} state=${row.state} />` },
        { key: "lag", label: "Lag", end: true, cell: (row) => count(row.lag_messages) },
        { key: "seconds", label: "Behind", end: true, cell: (row) => duration(row.lag_seconds) },
      ]} />
  <//>`;
}

function AddPartitions({ topic, now, onClose, onDone }) {
  const [wanted, setWanted] = useState(String(now + 1));
  const { isBusy, error, start } = useAction(
    () => post(`/topics/${part(topic)}/partitions`, { count: Number(wanted) }),
    () => {
      onClose();
      onDone();
      toast(`${topic} has ${wanted} partitions now.`);
    },
  );
  return html`<${Dialog} title=${`Partitions of ${topic}`} onClose=${onClose} onSubmit=${start}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" disabled=${isBusy || !(Number(wanted) > now)}>Add ${Math.max(0, Number(wanted) - now) || ""} partitions</button>`}>
    <${TextField} label="Partitions in all" type="number" min=${now + 1} value=${wanted} onValue=${setWanted} hint=${`It has ${now} now. Partitions cannot be removed.`} />
    <ul class="consequences"><li>Keys go to other partitions than before: the order of messages with the same key holds within one partition only.</li></ul>
    <${ErrorNotice} error=${error} />
  <//>`;
}
