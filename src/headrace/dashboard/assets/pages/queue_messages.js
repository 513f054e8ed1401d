/** Messages of a queue, looked at without receiving them. */
import { html, useState } from "../core/html.js";
import { part } from "../core/api.js";
import { ago, bytes, count, time } from "../core/format.js";
import { useResource } from "../core/resource.js";
import { StateBadge } from "../components/badge.js";
import { Dialog } from "../components/dialog.js";
import { Facts } from "../components/stat.js";
import { Empty, Failed } from "../components/states.js";
import { DataTable } from "../components/table.js";
import { Headers, Payload, preview } from "./message.js";

const LIMIT = 50;

const keyOf = (row) => row.offset;

export function QueueMessages({ name, queue, version }) {
  const peeked = useResource(`/queues/${part(name)}/messages`, { query: { limit: LIMIT }, pollMs: 2000, version });
  const rows = peeked.data?.items ?? [];
  if (peeked.error && !peeked.data) return html`<div class="card"><${Failed} error=${peeked.error} retry=${peeked.reload} /></div>`;
  return html`<section class="card" aria-label="Messages">
    <div class="card-head"><div><h2>Messages</h2><p>The first ${LIMIT}, looked at without receiving them: their visibility does not change</p></div></div>
    <${QueueTable} rows=${rows} isLoading=${peeked.isLoading && !peeked.data}
      empty=${html`<${Empty} icon="queues" title="The queue is empty" command=${`headrace queue send ${name} 'hello'`}>${queue.in_flight ? `${count(queue.in_flight)} messages are in flight.` : "Send one with the button above, or from the terminal."}<//>`} />
  </section>`;
}

/** @param {{ rows: any[], extra?: any[] }} props `extra` are columns behind the body */
export function QueueTable({ rows, isLoading, empty, extra = [] }) {
  const [open, setOpen] = useState(null);
  const shown = rows.find((each) => keyOf(each) === open);
  return html`<${DataTable} caption="Messages" rows=${rows} rowKey=${keyOf} isLoading=${isLoading} empty=${empty}
      columns=${[
        { key: "sent", label: "Sent", cell: (row) => html`<time class="nowrap">${time(row.sent_ms)}</time>` },
        { key: "body", label: "Body", wide: true, fill: true, cell: (row) => html`<button type="button" class="cut value mono" aria-label=${`Open the message ${row.id}`} onClick=${() => setOpen(keyOf(row))}>${preview({ value: row.body })}</button>` },
        ...extra,
        { key: "state", label: "State", cell: (row) => html`<${QueueState} row=${row} />` },
        { key: "attempts", label: "Receives", end: true, cell: (row) => count(row.attempts) },
        { key: "size", label: "Size", end: true, phone: false, cell: (row) => bytes(row.size_bytes) },
      ]} />
    ${shown && html`<${QueueMessage} row=${shown} onClose=${() => setOpen(null)} />`}`;
}

const STATES = { available: "visible" };

function QueueState({ row }) {
  return html`<span class="row nowrap"><${StateBadge} state=${STATES[row.state] ?? row.state} />${row.until_ms && html`<span class="tiny muted" title=${time(row.until_ms)}>${ago(row.until_ms)}</span>`}</span>`;
}

function QueueMessage({ row, onClose }) {
  return html`<${Dialog} wide title="Message" onClose=${onClose}>
    <${Facts} rows=${[
      ["Id", html`<code>${row.id}</code>`],
      ["Sent", time(row.sent_ms, { withMs: true })],
      ["State", html`<${QueueState} row=${row} />`],
      ["Visible again", row.until_ms ? time(row.until_ms) : undefined],
      ["Received", `${count(row.attempts)} times`],
      ["Message group", row.group ?? undefined],
      ["Priority", row.priority ?? undefined],
      ["Reason", row.origin?.reason ?? undefined],
      ["From queue", row.origin?.queue ? `${row.origin.queue}, received ${count(row.origin.attempts)} times there` : undefined],
    ]} />
    <${Payload} label="Body" text=${row.body ?? ""} encoding=${row.body_encoding} truncated=${row.truncated} />
    <${Headers} headers=${row.headers ?? []} />
  <//>`;
}
