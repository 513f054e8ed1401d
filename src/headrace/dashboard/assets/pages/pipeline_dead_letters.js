/** Rows that a pipeline could not process, with the reason, and sending them through it again. */
import { html, useState } from "../core/html.js";
import { part, post } from "../core/api.js";
import { count, plural, time } from "../core/format.js";
import { useResource } from "../core/resource.js";
import { useRights } from "../core/rights.js";
import { to } from "../core/router.js";
import { Dialog, useAction } from "../components/dialog.js";
import { TextField } from "../components/form.js";
import { Icon } from "../components/icons.js";
import { Progress } from "../components/stat.js";
import { Empty, ErrorNotice, Failed } from "../components/states.js";
import { DataTable } from "../components/table.js";
import { toast } from "../components/toast.js";
import { MessageDetail, preview } from "./message.js";

const sampleKey = (row) => `${row.partition}:${row.offset}:${row.timestamp_ms}`;

export function PipelineDeadLetters({ name, pipeline, reload }) {
  const letters = useResource(`/pipelines/${part(name)}/dead-letters`);
  const { canChange } = useRights();
  const [asked, setAsked] = useState(null);
  const data = letters.data;
  const isReplaying = pipeline.replay?.state === "running";
  if (letters.error && !data) return html`<div class="card"><${Failed} error=${letters.error} retry=${letters.reload} /></div>`;
  return html`<section class="card" aria-label="Dead letters">
    <div class="card-head">
      <div><h2>Dead letters</h2><p>${data ? html`${plural(data.waiting, "row")} wait in <${TopicLinks} topics=${data.topics} />, by reason` : "Rows that failed, by reason"}</p></div>
      ${canChange && html`<button type="button" class="button primary" disabled=${!data?.waiting || isReplaying} onClick=${() => setAsked("")}><${Icon} name="undo" />Replay all</button>`}
    </div>
    ${pipeline.replay && html`<${ReplayProgress} replay=${pipeline.replay} />`}
    <${DataTable} caption="Dead letters" rows=${data?.reasons ?? []} rowKey=${(row) => row.reason} isLoading=${letters.isLoading && !data}
      empty=${html`<${Empty} icon="check" title="No dead letters">Rows that a step or a schema rejects appear here with the reason.<//>`}
      columns=${[
        { key: "reason", label: "Reason", wide: true, cell: (row) => html`<code class="reason">${row.reason}</code>` },
        { key: "letters", label: "Rows", end: true, cell: (row) => count(row.letters) },
        { key: "replayed", label: "Replayed", end: true, cell: (row) => count(row.replayed) },
        { key: "last", label: "Last", end: true, cell: (row) => html`<time class="nowrap">${time(row.last_ms)}</time>` },
        { key: "samples", label: "Samples", wide: true, fill: true, cell: (row) => html`<${Samples} rows=${row.samples} />` },
        { key: "replay", label: "Replay", hidden: true, end: true, cell: (row) => canChange && row.replayed < row.letters && html`<button type="button" class="button small" disabled=${isReplaying} aria-label=${`Replay rows with the reason ${row.reason}`} onClick=${() => setAsked(row.reason)}>Replay</button>` },
      ]} />
    ${asked !== null && html`<${ReplayDialog} name=${name} total=${asked ? data.reasons.find((each) => each.reason === asked)?.letters : data.waiting} reason=${asked} onClose=${() => setAsked(null)} onDone=${reload} />`}
  </section>`;
}

function TopicLinks({ topics }) {
  return topics.map((each, i) => html`${i > 0 ? ", " : ""}<a href=${to("topics", each.topic, "messages")}>${each.topic}</a>`);
}

function Samples({ rows }) {
  const [open, setOpen] = useState(null);
  const shown = rows.find((each) => sampleKey(each) === open);
  return html`<div class="stack-s">${rows.map((each) => html`<button key=${sampleKey(each)} type="button" class="cut value mono" aria-label=${`Open the row at offset ${each.offset}`} onClick=${() => setOpen(sampleKey(each))}>${preview(each)}</button>`)}</div>
    ${shown && html`<${MessageDetail} message=${shown} onClose=${() => setOpen(null)} />`}`;
}

function ReplayDialog({ name, total, reason: asked, onClose, onDone }) {
  const [reason, setReason] = useState(asked);
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
