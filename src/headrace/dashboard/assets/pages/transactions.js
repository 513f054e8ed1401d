/** Transactions: which are open and for how long, and aborting one that hangs. */
import { html, useState } from "../core/html.js";
import { part, post } from "../core/api.js";
import { ago, count, duration } from "../core/format.js";
import { useRights } from "../core/rights.js";
import { StateBadge } from "../components/badge.js";
import { Confirm } from "../components/dialog.js";
import { PageHead } from "../components/page.js";
import { Empty } from "../components/states.js";
import { ListTable } from "../components/table.js";
import { toast } from "../components/toast.js";

const partitionsOf = (row) => row.partition_count ?? (Array.isArray(row.partitions) ? row.partitions.length : row.partitions);
const isOpen = (row) => row.state.toLowerCase() === "ongoing";

export function TransactionsPage() {
  const [chosen, setChosen] = useState(null);
  const [version, setVersion] = useState(0);
  const { canChange } = useRights();
  const columns = [
    { key: "id", label: "Transactional id", name: true, sort: "transactional_id", cell: (row) => html`<span class="truncate" title=${row.transactional_id}>${row.transactional_id}</span>` },
    { key: "state", label: "State", sort: "state", cell: (row) => html`<${StateBadge} state=${row.state} />` },
    { key: "open", label: "Open for", end: true, sort: "started_ms", cell: (row) => (row.started_ms ? duration((Date.now() - row.started_ms) / 1000) : html`<span class="muted">not open</span>`) },
    { key: "partitions", label: "Partitions", end: true, cell: (row) => count(partitionsOf(row)) },
    { key: "producer", label: "Producer id", end: true, sort: "producer_id", cell: (row) => row.producer_id },
    { key: "updated", label: "Updated", end: true, phone: false, cell: (row) => ago(row.updated_ms) },
    { key: "coordinator", label: "Coordinator", end: true, phone: false, cell: (row) => `broker ${row.coordinator}` },
    {
      key: "abort",
      label: "Abort",
      hidden: true,
      end: true,
      cell: (row) => canChange && isOpen(row) && html`<button type="button" class="button small danger" aria-label=${`Abort ${row.transactional_id}`} onClick=${() => setChosen(row)}>Abort</button>`,
    },
  ];
  return html`<${PageHead} title="Transactions" note="Producers with a transactional id. An open transaction delays readers with read_committed." />
    <${ListTable} path="/transactions" caption="Transactions" search="Search transactional ids" sort="transactional_id" version=${version} columns=${columns} rowKey=${(row) => row.transactional_id}
      empty=${html`<${Empty} icon="transactions" title="No transaction yet" command="headrace txn list">A producer with <code>transactional.id</code> appears here.<//>`} />
    ${chosen &&
    html`<${Confirm} title=${`Abort the transaction of ${chosen.transactional_id}?`} action="Abort the transaction" danger onClose=${() => setChosen(null)}
      consequences=${[
        `Its messages in ${count(partitionsOf(chosen))} partitions are never visible to readers with read_committed.`,
        "Offsets that it has committed are discarded.",
        "The producer gets an error with its next request and has to start again.",
      ]}
      run=${async () => {
        await post(`/transactions/${part(chosen.transactional_id)}/abort`);
        toast(`Aborted the transaction of ${chosen.transactional_id}.`);
        setVersion(version + 1);
      }} />`}`;
}
