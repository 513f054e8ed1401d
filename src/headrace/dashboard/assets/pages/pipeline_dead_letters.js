/** Rows that a pipeline could not process, with the reason, and sending them through it again. */
import { html, useState } from "../core/html.js";
import { part, post } from "../core/api.js";
import { count, plural, time } from "../core/format.js";
import { useResource } from "../core/resource.js";
import { useRights } from "../core/rights.js";
import { to } from "../core/router.js";
import { Badge } from "../components/badge.js";
import { Dialog, useAction } from "../components/dialog.js";
import { TextField } from "../components/form.js";
import { Icon } from "../components/icons.js";
import { Progress } from "../components/stat.js";
import { Empty, ErrorNotice, Failed } from "../components/states.js";
import { DataTable } from "../components/table.js";
import { toast } from "../components/toast.js";
import { MessageDetail, preview } from "./message.js";

const reasonOf = (row) => row.reason ?? row.headers?.find(([name]) => /reason|error/i.test(name))?.[1] ?? "";
const keyOf = (row) => `${row.topic ?? ""} ${row.partition}:${row.offset}`;

export function PipelineDeadLetters({ name, pipeline, reload }) {
  const letters = useResource(`/pipelines/${part(name)}/dead-letters`);
  const { canChange } = useRights();
  const [isAsking, setAsking] = useState(false);
  const [open, setOpen] = useState(null);
  const rows = letters.data?.items ?? (Array.isArray(letters.data) ? letters.data : []);
  const shown = rows.find((each) => keyOf(each) === open);
  const replay = pipeline.replay;
  if (letters.error && !letters.data) return html`<div class="card"><${Failed} error=${letters.error} retry=${letters.reload} /></div>`;
  return html`<section class="card" aria-label="Dead letters">
    <div class="card-head">
      <div><h2>Dead letters</h2><p>Rows that failed, newest first, in ${(pipeline.dead_letter_topics ?? []).map((each, i) => html`${i > 0 ? ", " : ""}<a href=${to("topics", each, "messages")}>${each}</a>`)}</p></div>
      ${canChange && html`<button type="button" class="button primary" disabled=${!rows.length || replay?.state === "running"} onClick=${() => setAsking(true)}><${Icon} name="undo" />Replay</button>`}
    </div>
    ${replay && html`<${ReplayProgress} replay=${replay} />`}
    <${DataTable} caption="Dead letters" rows=${rows} rowKey=${keyOf} isLoading=${letters.isLoading && !letters.data}
      empty=${html`<${Empty} icon="check" title="No dead letters">Rows that a step or a schema rejects appear here with the reason.<//>`}
      columns=${[
        { key: "time", label: "Time", cell: (row) => html`<time class="nowrap">${time(row.timestamp_ms)}</time>` },
        { key: "reason", label: "Reason", wide: true, cell: (row) => html`<${Badge} tone="crit">${String(reasonOf(row)).slice(0, 80) || "unknown"}<//>` },
        { key: "value", label: "Row", wide: true, cell: (row) => html`<button type="button" class="cut value mono" aria-label=${`Open the row at offset ${row.offset}`} onClick=${() => setOpen(keyOf(row))}>${preview(row)}</button>` },
        { key: "offset", label: "Offset", end: true, phone: false, cell: (row) => row.offset },
      ]} />
    ${shown && html`<${MessageDetail} message=${shown} onClose=${() => setOpen(null)} />`}
    ${isAsking && html`<${ReplayDialog} name=${name} total=${pipeline.dead_letters} onClose=${() => setAsking(false)} onDone=${reload} />`}
  </section>`;
}

function ReplayDialog({ name, total, onClose, onDone }) {
  const [reason, setReason] = useState("");
  const { isBusy, error, start } = useAction(
    () => post(`/pipelines/${part(name)}/replay`, { reason }),
    () => {
      onClose();
      onDone();
      toast(`Replaying dead letters of ${name}.`);
    },
  );
  return html`<${Dialog} title=${`Replay dead letters of ${name}?`} onClose=${onClose} onSubmit=${start}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" disabled=${isBusy}>${isBusy ? "Starting…" : "Replay"}</button>`}>
    <ul class="consequences">
      <li>Up to ${plural(total, "row")} go back to the source topics, and through the pipeline again.</li>
      <li>Rows that fail again become dead letters again.</li>
      <li>A row that was replayed before is not replayed twice.</li>
    </ul>
    <${TextField} label="Only with this in the reason" value=${reason} onValue=${setReason} placeholder="schema" hint="Empty: all" />
    <${ErrorNotice} error=${error} />
  <//>`;
}

function ReplayProgress({ replay }) {
  const word = { running: "Replaying", done: "Replay ended", failed: "Replay failed" }[replay.state] ?? replay.state;
  const share = replay.total ? Math.min(1, replay.seen / replay.total) : replay.state === "running" ? null : 1;
  return html`<div class="redrive" role="status">
    <span class="small">${word}: <b class="num">${count(replay.sent)}</b> sent, <b class="num">${count(replay.seen)}</b> of <b class="num">${count(replay.total)}</b> looked at</span>
    <${Progress} share=${share} label="Replay" />
    ${replay.error && html`<p class="small problem">${replay.error}</p>`}
  </div>`;
}
