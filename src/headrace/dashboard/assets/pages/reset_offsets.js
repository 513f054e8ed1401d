/** Resetting a group's offsets: choose where to, see what would change, then do exactly that. */
import { html, useEffect, useState } from "../core/html.js";
import { part, post } from "../core/api.js";
import { count, plural } from "../core/format.js";
import { Dialog, useAction } from "../components/dialog.js";
import { SelectField, TextField } from "../components/form.js";
import { Icon } from "../components/icons.js";
import { ErrorNotice } from "../components/states.js";
import { DataTable } from "../components/table.js";
import { toast } from "../components/toast.js";

const TYPING_MS = 300;
const KINDS = [
  ["earliest", "The beginning"],
  ["latest", "The end"],
  ["offset", "An offset"],
  ["time", "A time"],
  ["shift", "Forward or back by"],
];

function target(kind, value) {
  if (kind === "earliest" || kind === "latest") return kind;
  if (value === "") return null;
  if (kind === "time") {
    const at = new Date(value);
    return Number.isNaN(at.getTime()) ? null : `time:${at.toISOString()}`;
  }
  return kind === "shift" ? `shift:${Number(value) >= 0 ? "+" : ""}${Number(value)}` : `offset:${Number(value)}`;
}

export function ResetDialog({ name, group, onClose, onDone }) {
  const topics = [...new Set((group.partitions ?? []).map((each) => each.topic))];
  const [topic, setTopic] = useState("");
  const [kind, setKind] = useState("earliest");
  const [value, setValue] = useState("");
  const [preview, setPreview] = useState({ rows: [], error: null, isBusy: false });
  const to = target(kind, value);
  const body = (dry_run) => ({ topics: topic ? [topic] : topics, to, dry_run });
  const path = `/groups/${part(name)}/reset`;

  useEffect(() => {
    if (!to || !topics.length) {
      setPreview({ rows: [], error: null, isBusy: false });
      return undefined;
    }
    let isOld = false;
    setPreview((now) => ({ ...now, isBusy: true }));
    const timer = setTimeout(async () => {
      try {
        const answer = await post(path, body(true));
        if (!isOld) setPreview({ rows: answer.items ?? answer.partitions ?? answer, error: null, isBusy: false });
      } catch (error) {
        if (!isOld) setPreview({ rows: [], error, isBusy: false });
      }
    }, TYPING_MS);
    return () => {
      isOld = true;
      clearTimeout(timer);
    };
  }, [to, topic]);

  const { isBusy, error, start } = useAction(
    () => post(path, body(false)),
    () => {
      onClose();
      onDone();
      toast(`Reset the offsets of ${name} in ${plural(changed.length, "partition")}.`);
    },
  );
  const changed = preview.rows.filter((each) => each.before !== each.after);
  const members = (group.members ?? []).length;
  return html`<${Dialog} wide title=${`Reset offsets of ${name}`} onClose=${onClose} onSubmit=${() => changed.length && !isBusy && start()}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button>
      <button class="button primary" disabled=${isBusy || preview.isBusy || changed.length === 0 || members > 0}>${isBusy ? "Resetting…" : `Reset ${plural(changed.length, "partition")}`}</button>`}>
    ${members > 0 && html`<div class="notice warn"><${Icon} name="warning" /><p>The group has ${plural(members, "member")}: stop its consumers first. They would overwrite what is set here.</p></div>`}
    <div class="form-grid">
      <${SelectField} label="Topic" value=${topic} onValue=${setTopic} options=${[["", `All topics (${topics.length})`], ...topics.map((each) => [each, each])]} />
      <${SelectField} label="To" value=${kind} onValue=${(next) => {
        setKind(next);
        setValue("");
      }} options=${KINDS} />
      ${kind === "offset" && html`<${TextField} label="Offset" type="number" min="0" value=${value} onValue=${setValue} />`}
      ${kind === "shift" && html`<${TextField} label="Messages" type="number" value=${value} onValue=${setValue} placeholder="-100" hint="Negative: back" />`}
      ${kind === "time" && html`<${TextField} label="Time" type="datetime-local" step="1" value=${value} onValue=${setValue} hint="In the time zone of this browser" />`}
    </div>
    <h3>What changes</h3>
    <div class="card reset-preview">
      <${DataTable} caption="What changes" rows=${preview.rows} rowKey=${(row) => `${row.topic} ${row.partition}`} isLoading=${preview.isBusy}
        empty=${html`<p class="empty small second">${to ? "Nothing changes." : "Fill in where to."}</p>`}
        columns=${[
          { key: "topic", label: "Topic", name: true, cell: (row) => row.topic },
          { key: "partition", label: "Partition", end: true, cell: (row) => row.partition },
          { key: "before", label: "Now", end: true, cell: (row) => (row.before === null || row.before < 0 ? "none" : count(row.before)) },
          { key: "after", label: "After", end: true, cell: (row) => html`<b>${count(row.after)}</b>` },
          { key: "delta", label: "Difference", end: true, cell: (row) => difference(row) },
        ]} />
    </div>
    <${ErrorNotice} error=${error ?? preview.error} />
  <//>`;
}

function difference(row) {
  if (row.before === null || row.before < 0) return "–";
  const by = row.after - row.before;
  return by === 0 ? html`<span class="muted">same</span>` : by < 0 ? `${count(-by)} again` : `${count(by)} skipped`;
}
