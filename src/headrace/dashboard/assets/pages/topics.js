/** The list of topics, and creating one. */
import { html, useState } from "../core/html.js";
import { post } from "../core/api.js";
import { bytes, bytesPerSecond, count, duration, perSecond, short } from "../core/format.js";
import { useRights } from "../core/rights.js";
import { navigate, setQuery, to, usePlace } from "../core/router.js";
import { Badge } from "../components/badge.js";
import { Dialog, useAction } from "../components/dialog.js";
import { Check, TextField } from "../components/form.js";
import { Icon } from "../components/icons.js";
import { PageHead } from "../components/page.js";
import { Empty, ErrorNotice } from "../components/states.js";
import { ListTable } from "../components/table.js";
import { toast } from "../components/toast.js";

const COLUMNS = [
  { key: "name", label: "Topic", name: true, sort: "name", cell: (row) => html`<${TopicName} row=${row} />` },
  { key: "partitions", label: "Partitions", end: true, sort: "partitions", cell: (row) => count(row.partitions) },
  { key: "replicas", label: "Replicas", end: true, sort: "replicas", cell: (row) => html`<${Replicas} row=${row} />` },
  { key: "messages", label: "Messages", end: true, sort: "messages", cell: (row) => short(row.messages) },
  { key: "size", label: "Size", end: true, sort: "size_bytes", cell: (row) => bytes(row.size_bytes) },
  { key: "in", label: "In", end: true, sort: "messages_in_per_s", cell: (row) => perSecond(row.messages_in_per_s) },
  { key: "out", label: "Bytes out", end: true, phone: false, sort: "bytes_out_per_s", cell: (row) => bytesPerSecond(row.bytes_out_per_s) },
  { key: "lag", label: "Most behind", end: true, sort: "lag_seconds_max", cell: (row) => html`<${Lag} row=${row} />` },
];

function TopicName({ row }) {
  return html`<span class="row nowrap"><a class="truncate" href=${to("topics", row.name)}>${row.name}</a>
    ${row.is_internal && html`<${Badge}>internal<//>`}${row.is_queue && html`<${Badge} tone="info">queue<//>`}</span>`;
}

function Replicas({ row }) {
  if (row.offline) return html`<${Badge} tone="crit" title="Partitions without a leader">${row.offline} offline<//>`;
  if (row.under_replicated) return html`<${Badge} tone="warn" title="Partitions with replicas that are not in sync">${row.under_replicated} not in sync<//>`;
  return count(row.replicas);
}

export function Lag({ row }) {
  if (!row.groups) return html`<span class="muted">no group</span>`;
  if (row.lag_messages_max === null || row.lag_messages_max === undefined) return "–";
  if (row.lag_messages_max === 0) return html`<span class="muted">caught up</span>`;
  return html`<span title=${`${count(row.lag_messages_max)} messages`}>${duration(row.lag_seconds_max)}</span>`;
}

export function TopicsPage() {
  const { query } = usePlace();
  const { may } = useRights();
  const [isCreating, setCreating] = useState(query.get("create") === "1");
  const create = may("create_topics") && html`<button type="button" class="button primary" onClick=${() => setCreating(true)}><${Icon} name="plus" />Create a topic</button>`;
  const internal = query.get("internal") === "true";
  return html`<${PageHead} title="Topics" note="Logs that are published to, subscribed to and replayed.">${create}<//>
    <${ListTable} path="/topics" caption="Topics" search="Search topics" sort="name" columns=${COLUMNS} rowKey=${(row) => row.name}
      query=${{ internal: internal ? "true" : undefined }}
      trail=${{ after: "in", label: "Trend", value: (row) => row.messages_in_per_s }}
      filters=${html`<${Check} label="Internal topics" value=${internal} onValue=${(on) => setQuery({ internal: on ? "true" : null, page: null })} />`}
      empty=${html`<${Empty} icon="topics" title="No topic yet" command="headrace topic create orders --partitions 3" action=${create}>
        Create one here, or publish with any Kafka client: a topic is made with its first message.
      <//>`} />
    ${isCreating && html`<${CreateTopic} onClose=${() => setCreating(false)} />`}`;
}

function CreateTopic({ onClose }) {
  const [name, setName] = useState("");
  const [partitions, setPartitions] = useState("");
  const [replicas, setReplicas] = useState("");
  const [settings, setSettings] = useState("");
  const problem = name && !/^[a-zA-Z0-9._-]{1,249}$/.test(name) ? "Letters, digits, dots, underscores and dashes only." : null;
  const { isBusy, error, start } = useAction(
    () => post("/topics", { name, partitions: Number(partitions) || undefined, replicas: Number(replicas) || undefined, settings: pairs(settings) }),
    (made) => {
      onClose();
      toast(`Created ${name} with ${made.partitions} partitions.`);
      navigate(to("topics", name));
    },
  );
  return html`<${Dialog} title="Create a topic" onClose=${onClose} onSubmit=${() => name && !problem && start()}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" disabled=${isBusy || !name || problem}>${isBusy ? "Creating…" : "Create"}</button>`}>
    <${TextField} label="Name" value=${name} onValue=${setName} problem=${problem} placeholder="orders" mono autofocus />
    <div class="form-grid">
      <${TextField} label="Partitions" type="number" min="1" value=${partitions} onValue=${setPartitions} hint="Empty: the broker's default" />
      <${TextField} label="Replicas" type="number" min="1" value=${replicas} onValue=${setReplicas} hint="Empty: the broker's default" />
      <${TextField} wide label="Settings" value=${settings} onValue=${setSettings} mono placeholder="retention.ms=86400000, cleanup.policy=compact" hint="NAME=VALUE, separated by commas" />
    </div>
    <${ErrorNotice} error=${error} />
  <//>`;
}

/** "a=b, c=d" as an object. A value may contain commas if it is the last one. */
export function pairs(text) {
  return Object.fromEntries(
    text
      .split(/,\s*(?=[a-zA-Z.]+=)/)
      .map((each) => each.trim())
      .filter(Boolean)
      .map((each) => [each.slice(0, each.indexOf("=")), each.slice(each.indexOf("=") + 1)]),
  );
}
