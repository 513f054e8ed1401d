/** One link: its source, lag and problems, its mirror topics, and taking topics over with a look at what would be missing. */
import { html, useEffect, useState } from "../core/html.js";
import { part, post, put } from "../core/api.js";
import { ago, bytes, bytesPerSecond, count, duration, plural, short } from "../core/format.js";
import { useResource } from "../core/resource.js";
import { useRights } from "../core/rights.js";
import { setQuery, to, usePlace } from "../core/router.js";
import { StateBadge } from "../components/badge.js";
import { Confirm } from "../components/dialog.js";
import { Choice } from "../components/form.js";
import { Icon } from "../components/icons.js";
import { PageHead } from "../components/page.js";
import { Card, Facts, Stats } from "../components/stat.js";
import { Empty, ErrorNotice, Loaded } from "../components/states.js";
import { DataTable, ListTable } from "../components/table.js";
import { toast } from "../components/toast.js";
import { behind, takeover } from "./links.js";

const STATES = [["", "All states"], ["mirroring", "Mirroring"], ["paused", "Paused"], ["faulted", "Faulted"], ["promoting", "Promoting"], ["reversing", "Reversing"], ["stopped", "Taken over"]];

export function LinkPage({ name }) {
  const [version, setVersion] = useState(0);
  const figures = useResource(`/links/${part(name)}/figures`, { version });
  return html`<${Loaded} resource=${figures}>${(data) => html`<${LinkView} name=${name} data=${data} version=${version} onChange=${() => setVersion((now) => now + 1)} />`}<//>`;
}

function LinkView({ name, data, version, onChange }) {
  const [isAsking, setAsking] = useState(false);
  const { may } = useRights();
  const { link } = data;
  const isPaused = link.state === "paused";
  return html`<${PageHead} title=${name} badges=${html`<${StateBadge} state=${link.state} />`} note=${`Mirrors topics of ${link.bootstrap.join(", ")}`}>
      ${may("alter_cluster") && html`<button type="button" class="button" onClick=${() => setAsking(true)}>${isPaused ? "Resume" : "Pause"} the link</button>`}
    <//>
    ${link.problem && html`<${ErrorNotice} error=${{ message: link.problem }} />`}
    <${Stats} label="Now" items=${[
      { label: "Behind (RPO)", value: duration(link.lag_seconds), tone: link.lag_seconds > 60 ? "warn" : "", note: "what a failover would lose" },
      { label: "Lag", value: short(link.lag_messages), unit: "messages" },
      { label: "Copied", value: bytesPerSecond(link.copied_per_s) },
      { label: "Last takeover (RTO)", value: takeover(link), note: `${plural(link.promoted_count, "topic")} taken over` },
    ]} />
    <${Mirrors} name=${name} isPaused=${isPaused} version=${version} onChange=${onChange} />
    ${data.problem_count > 0 && html`<${Problems} name=${name} rows=${data.problems} total=${data.problem_count} onChange=${onChange} />`}
    <${Card} title="Settings" body>
      <${Facts} rows=${[
        ["Source cluster", html`<code>${link.source_cluster_id}</code>`],
        ["Last contact", data.contact_ms === null ? "none yet" : ago(data.contact_ms)],
        ["Topics", html`<code>${data.topics.join(", ") || "none"}</code>`],
        ["Left out", html`<code>${data.exclude.join(", ") || "none"}</code>`],
        ["Prefix here", html`<code>${link.prefix || "none"}</code>`],
        ["At most", data.max_bytes_per_second === null ? "no limit" : `${bytesPerSecond(data.max_bytes_per_second)} for each broker`],
      ]} />
    <//>
    ${isAsking &&
    html`<${Confirm} title=${`${isPaused ? "Resume" : "Pause"} the link ${name}?`} action=${isPaused ? "Resume the link" : "Pause the link"} onClose=${() => setAsking(false)}
      consequences=${isPaused ? ["Its mirror topics copy again from where they were."] : ["Nothing is copied until it is resumed: a failover would lose more and more.", "Mirror topics stay, and stay read-only."]}
      run=${async () => {
        await put(`/links/${part(name)}/paused`, { is_paused: !isPaused });
        toast(`${isPaused ? "Resumed" : "Paused"} the link ${name}.`);
        onChange();
      }} />`}`;
}

function Mirrors({ name, isPaused, version, onChange }) {
  const { query } = usePlace();
  const { may } = useRights();
  const [chosen, setChosen] = useState(null);
  const state = query.get("state") ?? "";
  const button = (row, action, label, danger = false) =>
    html`<button type="button" class=${`button small ${danger ? "danger" : ""}`} aria-label=${`${label} ${row.topic}`} onClick=${() => setChosen({ row, action })}>${label}</button>`;
  const actions = (row) =>
    html`<span class="row nowrap">
      ${row.state === "stopped" && button(row, "reverse", "Reverse")}
      ${row.state === "mirroring" && button(row, "pause", "Pause")}
      ${row.state === "paused" && button(row, "resume", "Resume")}
      ${row.state === "mirroring" && !isPaused && button(row, "promote", "Promote")}
      ${row.state !== "stopped" && button(row, "failover", "Fail over", true)}
    </span>`;
  const columns = [
    {
      key: "topic",
      label: "Topic",
      name: true,
      sort: "topic",
      cell: (row) => html`<div><a href=${to("topics", row.topic)}>${row.topic}</a></div><div class="tiny muted">of ${row.source_topic}</div>${row.note && html`<div class="tiny">${row.note}</div>`}`,
    },
    { key: "state", label: "State", sort: "state", cell: (row) => (row.state === "stopped" ? html`<span class="muted">taken over</span>` : html`<${StateBadge} state=${row.state} />`) },
    { key: "partitions", label: "Partitions", end: true, phone: false, sort: "partition_count", cell: (row) => count(row.partition_count) },
    { key: "lag", label: "Lag", end: true, sort: "lag_messages", cell: (row) => count(row.lag_messages) },
    { key: "seconds", label: "Behind", end: true, sort: "lag_seconds", cell: behind },
    { key: "bytes", label: "Copied", end: true, phone: false, sort: "copied_bytes", cell: (row) => bytes(row.copied_bytes) },
    ...(may("alter_cluster") ? [{ key: "actions", label: "Actions", hidden: true, end: true, cell: actions }] : []),
  ];
  return html`<${ListTable} path=${`/links/${part(name)}/topics`} caption="Mirror topics" search="Search mirror topics" sort="topic" columns=${columns} rowKey=${(row) => row.topic} version=${version}
      query=${{ state: state || undefined }}
      filters=${html`<${Choice} label="State" value=${state} options=${STATES} onValue=${(value) => setQuery({ state: value, page: null })} />`}
      empty=${html`<${Empty} icon="links" title="No mirror topic yet" command=${`headrace link describe ${name}`}>Topics of the source that match appear here a few seconds after the link was created.<//>`} />
    ${chosen && (chosen.action === "pause" || chosen.action === "resume") && html`<${PauseTopic} name=${name} row=${chosen.row} isPause=${chosen.action === "pause"} onClose=${() => setChosen(null)} onDone=${onChange} />`}
    ${chosen && chosen.action === "reverse" && html`<${Reverse} name=${name} topic=${chosen.row.topic} onClose=${() => setChosen(null)} onDone=${onChange} />`}
    ${chosen && (chosen.action === "promote" || chosen.action === "failover") && html`<${TakeOver} row=${chosen.row} action=${chosen.action} onClose=${() => setChosen(null)} onDone=${onChange} />`}`;
}

function PauseTopic({ name, row, isPause, onClose, onDone }) {
  const verb = isPause ? "Pause" : "Resume";
  return html`<${Confirm} title=${`${verb} ${row.topic}?`} action=${`${verb} the mirror topic`} onClose=${onClose}
    consequences=${isPause ? ["Nothing is copied into it until it is resumed. It stays read-only."] : ["It copies again from where it was."]}
    run=${async () => {
      await put(`/links/${part(name)}/paused`, { is_paused: isPause, topics: [row.topic] });
      toast(`${isPause ? "Paused" : "Resumed"} ${row.topic}.`);
      onDone();
    }} />`;
}

/** A source that is asked twice a second was heard less than this ago. */
const MOMENT_S = 1;
const PATH = (row, action) => `/mirrors/${part(row.topic)}/${action}`;
const missing = (plan) => (plan.missing_messages === null ? "an unknown number of messages" : plural(plan.missing_messages, "message"));

/** What a dry run answers: `{ plan, error }`, both null at first. */
function useDryRun(path, body = {}) {
  const [found, setFound] = useState({ plan: null, error: null });
  useEffect(() => {
    let isOpen = true;
    post(path, { ...body, dry_run: true }).then(
      (plan) => isOpen && setFound({ plan, error: null }),
      (error) => isOpen && setFound({ plan: null, error }),
    );
    return () => {
      isOpen = false;
    };
  }, []);
  return found;
}

/** Asks for a dry run first, and shows what would be missing. */
function TakeOver({ row, action, onClose, onDone }) {
  const { plan, error } = useDryRun(PATH(row, action));
  const isFailover = action === "failover";
  const waits = plan && plan.missing_messages ? `It waits until ${missing(plan)} of the source are copied, for 60 seconds at most.` : "It has everything of the source now.";
  const loses = plan && (plan.missing_messages === 0 && plan.missing_seconds !== null && plan.missing_seconds < MOMENT_S ? "Nothing that the source had a moment ago is missing." : `${missing(plan)} of the source are missing, and what was written in the last ${duration(plan.missing_seconds)}.`);
  return html`<${Confirm} title=${isFailover ? `Fail over ${row.topic}?` : `Promote ${row.topic}?`} action=${isFailover ? "Fail over now" : "Promote"} danger=${isFailover} typed=${isFailover ? row.topic : undefined} onClose=${onClose}
    consequences=${[isFailover ? "It is writable here at once. It never goes back to being a mirror by itself." : "It is writable here when it has everything. Stop the producers of the source first.", `${row.source_topic} at the source is not changed: what is written there from now on is not copied.`]}
    run=${async () => {
      const done = await post(PATH(row, action), {});
      toast(`${row.topic} is writable here. ${missing(done)} may be missing.`);
      onDone();
    }}>
    <div role="status" class="notice"><${Icon} name="info" /><p>${error ? "What would be missing is not known." : plan ? (isFailover ? loses : waits) : "Looking what would be missing…"}</p></div>
    <${ErrorNotice} error=${error} />
  <//>`;
}

/** Asks for a dry run first, and shows what would be set aside. */
function Reverse({ name, topic, onClose, onDone }) {
  const path = `/links/${part(name)}/reverse`;
  const { plan, error } = useDryRun(path, { topic });
  const aside = (found) => `${plural(found.set_aside, "message")} that the other cluster never had`;
  return html`<${Confirm} title=${`Make ${topic} a mirror?`} action="Make it a mirror" danger typed=${topic} onClose=${onClose}
    consequences=${[
      `${topic} becomes read-only here: its producers are refused from now on.`,
      "What the other cluster never had is set aside in a topic of its own, and then the rest is copied from there.",
      "Afterwards, Promote moves the producers back here.",
    ]}
    run=${async () => {
      const done = await post(path, { topic });
      toast(done.is_complete ? `${topic} is a mirror of ${done.source_topic} now. ${aside(done)}: in ${done.divergent_topic}.` : `${topic} is read-only, and still sets messages aside. ${done.note}`);
      onDone();
    }}>
    <div role="status" class="notice"><${Icon} name="info" /><p>${error ? "It cannot be made a mirror now." : plan ? `${aside(plan)} would be set aside in ${plan.divergent_topic}.` : "Looking what would be set aside…"}</p></div>
    <${ErrorNotice} error=${error} />
  <//>`;
}

function Problems({ name, rows, total, onChange }) {
  const { may } = useRights();
  const [chosen, setChosen] = useState(null);
  const reverse = (row) =>
    row.reversible && html`<button type="button" class="button small" aria-label=${`Reverse ${row.reversible}`} onClick=${() => setChosen(row.reversible)}>Reverse</button>`;
  return html`${chosen && html`<${Reverse} name=${name} topic=${chosen} onClose=${() => setChosen(null)} onDone=${onChange} />`}
  <${Card} title="Topics with problems" note=${rows.length < total ? `The first ${rows.length} of ${count(total)}` : undefined}>
    <${DataTable} caption="Topics with problems" rows=${rows} rowKey=${(row) => row.topic}
      columns=${[
        { key: "topic", label: "Topic of the source", name: true, cell: (row) => row.topic },
        { key: "problem", label: "Problem", wide: true, cell: (row) => row.problem },
        ...(may("alter_cluster") ? [{ key: "actions", label: "Actions", hidden: true, end: true, cell: reverse }] : []),
      ]} />
  <//>`;
}
