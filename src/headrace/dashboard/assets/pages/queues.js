/** The list of queues, and creating one. */
import { html, useState } from "../core/html.js";
import { post } from "../core/api.js";
import { count, duration, perSecond, short } from "../core/format.js";
import { useRights } from "../core/rights.js";
import { navigate, to } from "../core/router.js";
import { Badge } from "../components/badge.js";
import { Dialog, useAction } from "../components/dialog.js";
import { Check, TextField } from "../components/form.js";
import { Icon } from "../components/icons.js";
import { PageHead } from "../components/page.js";
import { Empty, ErrorNotice } from "../components/states.js";
import { ListTable } from "../components/table.js";
import { toast } from "../components/toast.js";

const COLUMNS = [
  {
    key: "queue",
    label: "Queue",
    name: true,
    sort: "queue",
    cell: (row) => html`<span class="row nowrap"><a class="truncate" href=${to("queues", row.queue)}>${row.queue}</a>${row.fifo && html`<${Badge}>FIFO<//>`}${row.dead_letters_of?.length > 0 && html`<${Badge} tone="warn" title=${`Dead letters of ${row.dead_letters_of.join(", ")}`}>dead letters<//>`}</span>`,
  },
  { key: "visible", label: "Visible", end: true, sort: "visible", cell: (row) => short(row.visible) },
  { key: "flight", label: "In flight", end: true, sort: "in_flight", cell: (row) => short(row.in_flight) },
  { key: "delayed", label: "Delayed", end: true, sort: "delayed", cell: (row) => short(row.delayed) },
  { key: "age", label: "Oldest", end: true, sort: "oldest_age_s", cell: (row) => duration(row.oldest_age_s) },
  { key: "dead", label: "Dead letters", end: true, sort: "dead_letters", cell: (row) => html`<${DeadLetters} row=${row} />` },
  { key: "sent", label: "Sent", end: true, sort: "sent_per_s", cell: (row) => perSecond(row.sent_per_s) },
  { key: "deleted", label: "Deleted", end: true, phone: false, sort: "deleted_per_s", cell: (row) => perSecond(row.deleted_per_s) },
];

function DeadLetters({ row }) {
  if (!row.dead_letter_queue) return html`<span class="muted">no queue for them</span>`;
  if (!row.dead_letters) return "0";
  return html`<a href=${to("queues", row.queue, "dead-letters")}><${Badge} tone="crit">${count(row.dead_letters)}<//></a>`;
}

export function QueuesPage() {
  const { may } = useRights();
  const [isCreating, setCreating] = useState(false);
  const create = may("create_topics") && html`<button type="button" class="button primary" onClick=${() => setCreating(true)}><${Icon} name="plus" />Create a queue</button>`;
  return html`<${PageHead} title="Queues" note="Work that is received, acknowledged, retried and dead-lettered.">${create}<//>
    <${ListTable} path="/queues" caption="Queues" search="Search queues" sort="queue" columns=${COLUMNS} rowKey=${(row) => row.queue}
      trail=${{ after: "visible", label: "Visible, live", value: (row) => row.visible }}
      empty=${html`<${Empty} icon="queues" title="No queue yet" command="headrace queue create jobs" action=${create}>Create one here, with <code>headrace queue</code>, or with any SQS client.<//>`} />
    ${isCreating && html`<${CreateQueue} onClose=${() => setCreating(false)} />`}`;
}

function CreateQueue({ onClose }) {
  const [name, setName] = useState("");
  const [isFifo, setFifo] = useState(false);
  const [dead, setDead] = useState("");
  const [receives, setReceives] = useState("5");
  const full = isFifo && !name.endsWith(".fifo") ? `${name}.fifo` : name;
  const deadName = dead && isFifo && !dead.endsWith(".fifo") ? `${dead}.fifo` : dead;
  const { isBusy, error, start } = useAction(
    async () => {
      if (deadName) await post("/queues", { name: deadName });
      return post("/queues", { name: full, settings: deadName ? { "dead.letter": deadName, "max.receives": receives } : {} });
    },
    () => {
      onClose();
      toast(`Created the queue ${full}.`);
      navigate(to("queues", full));
    },
  );
  return html`<${Dialog} title="Create a queue" onClose=${onClose} onSubmit=${() => name && start()}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" disabled=${isBusy || !name}>${isBusy ? "Creating…" : "Create"}</button>`}>
    <${TextField} label="Name" value=${name} onValue=${setName} mono placeholder="jobs" hint=${isFifo && name ? `It is called ${full}` : undefined} autofocus />
    <${Check} label="FIFO: keep the order within each message group" value=${isFifo} onValue=${setFifo} />
    <div class="form-grid">
      <${TextField} label="Dead-letter queue" value=${dead} onValue=${setDead} mono placeholder="jobs-dead" hint="Made if it does not exist. Empty: messages are retried until they expire" />
      <${TextField} label="Receives before a message is dead" type="number" min="1" value=${receives} onValue=${setReceives} />
    </div>
    <${ErrorNotice} error=${error} />
  <//>`;
}
