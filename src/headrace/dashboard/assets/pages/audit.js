/** The audit log: who did what, and with which outcome, newest first. */
import { html } from "../core/html.js";
import { count, time } from "../core/format.js";
import { useResource } from "../core/resource.js";
import { setQuery, usePlace } from "../core/router.js";
import { Badge } from "../components/badge.js";
import { Choice } from "../components/form.js";
import { Empty, Failed } from "../components/states.js";
import { DataTable, SearchField } from "../components/table.js";

const LIMIT = 200;
const EVENTS = [["", "All events"], ["authentication", "Logins"], ["authorization", "Denials and permissions"], ["admin", "Changes"], ["produce", "Produce"], ["consume", "Consume"]];
const OUTCOMES = [["", "All outcomes"], ["success", "Success"], ["failure", "Failure"], ["allowed", "Allowed"], ["denied", "Denied"]];
const isBad = (row) => row.outcome === "failure" || row.outcome === "denied";

const COLUMNS = [
  { key: "time", label: "Time", cell: (row) => html`<time class="nowrap">${time(row.time)}</time>` },
  { key: "principal", label: "Who", name: true, cell: (row) => html`<div class="truncate">${row.principal || "unknown"}</div><div class="tiny muted mono">${row.host}</div>` },
  { key: "action", label: "What", wide: true, cell: (row) => html`<code>${row.action || row.event}</code>` },
  { key: "resource", label: "Resource", wide: true, cell: (row) => html`<span class="row"><span class="muted">${row.resource_type.toLowerCase()}</span><code>${row.resource_name}</code></span>` },
  { key: "outcome", label: "Outcome", cell: (row) => html`<${Badge} tone=${isBad(row) ? "crit" : "ok"} title=${row.reason || row.error}>${row.outcome}<//>` },
  { key: "count", label: "Times", end: true, phone: false, cell: (row) => count(row.count) },
];

export function Audit() {
  const { query } = usePlace();
  const wanted = { search: query.get("search") ?? "", event: query.get("event") ?? "", outcome: query.get("outcome") ?? "", limit: LIMIT };
  const events = useResource("/audit", { query: wanted, pollMs: 10_000 });
  const isFiltered = wanted.search || wanted.event || wanted.outcome;
  return html`<section class="card" aria-label="Audit log">
    <div class="table-tools">
      <${SearchField} label="Search the audit log" value=${wanted.search} />
      <${Choice} label="Event" value=${wanted.event} options=${EVENTS} onValue=${(event) => setQuery({ event })} />
      <${Choice} label="Outcome" value=${wanted.outcome} options=${OUTCOMES} onValue=${(outcome) => setQuery({ outcome })} />
    </div>
    ${events.error && !events.data
      ? html`<${Failed} error=${events.error} retry=${events.reload} />`
      : html`<${DataTable} caption="Audit log" rows=${events.data?.items ?? []} rowKey=${(row) => `${row.time} ${row.principal} ${row.action} ${row.resource_name}`} columns=${COLUMNS} isLoading=${events.isLoading && !events.data}
          empty=${isFiltered
            ? html`<${Empty} icon="search" title="No event matches">Clear the search, or choose other events.<//>`
            : html`<${Empty} icon="security" title="No event yet" command="headrace serve --set audit.enable=true">Logins, denials and changes appear here once the audit log is on.<//>`} />`}
  </section>`;
}
