/** Partitions that move between brokers, with progress, and moving some. */
import { html, useRef, useState } from "../core/html.js";
import { post } from "../core/api.js";
import { count } from "../core/format.js";
import { useResource } from "../core/resource.js";
import { useRights } from "../core/rights.js";
import { to } from "../core/router.js";
import { Dialog, useAction } from "../components/dialog.js";
import { TextField } from "../components/form.js";
import { Icon } from "../components/icons.js";
import { Progress } from "../components/stat.js";
import { Empty, ErrorNotice, Loaded } from "../components/states.js";
import { DataTable } from "../components/table.js";
import { toast } from "../components/toast.js";

export function Reassignments({ brokers }) {
  const moves = useResource("/cluster/reassignments", { pollMs: 2000 });
  const { may } = useRights();
  const [isAsking, setAsking] = useState(false);
  return html`<section class="card" aria-label="Reassignments">
    <div class="card-head"><div><h2>Partitions that move</h2><p>A partition is served all the time while it moves</p></div>
      ${may("alter_cluster") && html`<button type="button" class="button" disabled=${brokers.length < 2} onClick=${() => setAsking(true)}>Move a partition</button>`}</div>
    <${Loaded} resource=${moves}>${(data) => html`<${Moves} rows=${data} />`}<//>
    ${isAsking && html`<${MoveDialog} brokers=${brokers} onClose=${() => setAsking(false)} onDone=${moves.reload} />`}
  </section>`;
}

const keyOf = (row) => `${row.topic} ${row.partition}`;

function Moves({ rows }) {
  const most = useRef(new Map());
  /** How much of what was missing when it was first seen has been copied. */
  const share = (row) => {
    if (row.lag_messages === null) return null;
    const first = Math.max(row.lag_messages, most.current.get(keyOf(row)) ?? 0);
    most.current.set(keyOf(row), first);
    return first ? 1 - row.lag_messages / first : 1;
  };
  return html`<${DataTable} caption="Partitions that move" rows=${rows} rowKey=${keyOf}
    empty=${html`<${Empty} icon="cluster" title="No partition moves" command="headrace cluster rebalance">Drain a broker, or move a partition, and watch it here.<//>`}
    columns=${[
      { key: "topic", label: "Topic", name: true, cell: (row) => html`<a href=${to("topics", row.topic)}>${row.topic}</a>` },
      { key: "partition", label: "Partition", end: true, cell: (row) => row.partition },
      { key: "from", label: "Leaves", cell: (row) => row.removing.join(", ") || "–" },
      { key: "to", label: "Arrives at", cell: (row) => row.adding.join(", ") || "–" },
      { key: "progress", label: "Progress", wide: true, cell: (row) => html`<div class="disk-use"><${Progress} share=${share(row)} label="Progress" />
        <span class="tiny muted">${row.lag_messages === null ? "copying" : `${count(row.lag_messages)} messages left`}</span></div>` },
    ]} />`;
}

function MoveDialog({ brokers, onClose, onDone }) {
  const [topic, setTopic] = useState("");
  const [partition, setPartition] = useState("0");
  const [replicas, setReplicas] = useState("");
  const ids = replicas.split(/[\s,]+/).filter(Boolean).map(Number);
  const known = new Set(brokers.map((each) => each.broker_id));
  const problem = ids.some((each) => !known.has(each)) ? `Brokers are ${[...known].join(", ")}.` : null;
  const { isBusy, error, start } = useAction(
    () => post("/cluster/reassignments", { partitions: [{ topic, partition: Number(partition), replicas: ids }] }),
    () => {
      onClose();
      onDone();
      toast(`Moving ${topic} ${partition} to ${ids.join(", ")}.`);
    },
  );
  return html`<${Dialog} title="Move a partition" onClose=${onClose} onSubmit=${() => topic && ids.length && !problem && start()}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" disabled=${isBusy || !topic || !ids.length || problem}><${Icon} name="right" />Move</button>`}>
    <div class="form-grid">
      <${TextField} label="Topic" value=${topic} onValue=${setTopic} mono autofocus />
      <${TextField} label="Partition" type="number" min="0" value=${partition} onValue=${setPartition} />
      <${TextField} wide label="Replicas on brokers" value=${replicas} onValue=${setReplicas} mono placeholder="1, 2, 3" problem=${problem} hint="The first one leads. They copy the partition before the old ones leave." />
    </div>
    <${ErrorNotice} error=${error} />
  <//>`;
}
