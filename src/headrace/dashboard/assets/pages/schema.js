/** One subject: its schema, the difference of two versions, all versions, and what its level of compatibility means. */
import { html, useState } from "../core/html.js";
import { del, part, put } from "../core/api.js";
import { plural } from "../core/format.js";
import { useResource } from "../core/resource.js";
import { useRights } from "../core/rights.js";
import { navigate, setQuery, to, usePlace } from "../core/router.js";
import { Badge } from "../components/badge.js";
import { Code } from "../components/code.js";
import { Confirm, Dialog, useAction } from "../components/dialog.js";
import { Choice, SelectField } from "../components/form.js";
import { Icon } from "../components/icons.js";
import { PageHead } from "../components/page.js";
import { Card, Facts } from "../components/stat.js";
import { Empty, ErrorNotice, Loaded } from "../components/states.js";
import { DataTable } from "../components/table.js";
import { Tabs } from "../components/tabs.js";
import { toast } from "../components/toast.js";
import { RegisterDialog, typeName } from "./schemas.js";

const LEVELS = {
  BACKWARD: "Consumers with the new schema can read messages of the version before. Upgrade consumers first.",
  BACKWARD_TRANSITIVE: "Consumers with the new schema can read messages of every earlier version. Upgrade consumers first.",
  FORWARD: "Consumers with the version before can read messages of the new schema. Upgrade producers first.",
  FORWARD_TRANSITIVE: "Consumers with any earlier version can read messages of the new schema. Upgrade producers first.",
  FULL: "The new schema and the version before can read each other's messages. Upgrade in any order.",
  FULL_TRANSITIVE: "The new schema and every earlier version can read each other's messages. Upgrade in any order.",
  NONE: "Any change is accepted: consumers may fail to read older or newer messages.",
};
const levelName = (level) => level.toLowerCase().replace("_", " ");

export function SchemaPage({ name, tab = "schema" }) {
  const [version, setVersion] = useState(0);
  const subject = useResource(`/subjects/${part(name)}`, { version });
  return html`<${Loaded} resource=${subject}>${(data) => html`<${Subject} name=${name} tab=${tab} subject=${data} reload=${() => setVersion((now) => now + 1)} />`}<//>`;
}

function Subject({ name, tab, subject, reload }) {
  const [dialog, setDialog] = useState(null);
  const { canChange } = useRights();
  const { query } = usePlace();
  const { summary, versions } = subject;
  const shown = Number(query.get("version") ?? summary.version);
  const text = useResource(`/subjects/${part(name)}/versions/${shown}`, { pollMs: false });
  const close = () => setDialog(null);
  const href = (key) => to("schemas", name, key);
  const tabs = [
    { key: "schema", label: "Schema", href: href() },
    { key: "compare", label: "Compare", href: href("compare") },
    { key: "versions", label: "Versions", href: href("versions"), count: summary.versions },
  ];
  return html`<${PageHead} title=${name} note=${html`<${Meaning} subject=${subject} />`}
      badges=${html`<${Badge}>${typeName(summary.schema_type)}<//>${summary.is_deleted && html`<${Badge} tone="warn">deleted<//>`}${summary.mode !== "READWRITE" && html`<${Badge} tone="warn">${levelName(summary.mode)}<//>`}`}>
      ${canChange && html`<button type="button" class="button" onClick=${() => setDialog("level")}><${Icon} name="edit" />Compatibility</button>
        <button type="button" class="button danger" onClick=${() => setDialog("delete")}><${Icon} name="trash" />Delete</button>
        ${text.data && html`<button type="button" class="button primary" onClick=${() => setDialog("register")}><${Icon} name="plus" />New version</button>`}`}
    <//>
    <${Tabs} label="Parts of the subject" current=${tab} tabs=${tabs} />
    ${tab === "schema" && html`<${Version} subject=${subject} shown=${shown} text=${text} />`}
    ${tab === "compare" && html`<${Compare} name=${name} versions=${versions} />`}
    ${tab === "versions" && html`<${Versions} name=${name} versions=${versions} canChange=${canChange} onDelete=${(row) => setDialog(row)} />`}
    ${dialog === "register" && html`<${RegisterDialog} subject=${name} type=${summary.schema_type} text=${text.data.pretty} references=${text.data.references} onClose=${close}
      onDone=${() => {
        setQuery({ version: null });
        reload();
      }} />`}
    ${dialog === "level" && html`<${LevelDialog} name=${name} subject=${subject} onClose=${close} onDone=${reload} />`}
    ${dialog === "delete" && html`<${DeleteSubject} name=${name} summary=${summary} onClose=${close} onDone=${reload} />`}
    ${dialog?.version && html`<${DeleteVersion} name=${name} row=${dialog} onClose=${close} onDone=${reload} />`}`;
}

/** What the level means, and whether it is the subject's own. */
function Meaning({ subject }) {
  const level = subject.summary.compatibility;
  return html`<b>${levelName(level)}</b>${subject.own_compatibility ? "" : " (the registry's level)"}: ${LEVELS[level] ?? ""}`;
}

function Version({ subject, shown, text }) {
  const { versions, used_by: use } = subject;
  const options = versions.map((each) => [String(each.version), `Version ${each.version}${each.is_deleted ? ", deleted" : ""}`]);
  return html`<${Card} title=${`Version ${shown}`} body end=${html`<${Choice} label="Version" value=${String(shown)} options=${options} onValue=${(value) => setQuery({ version: value })} />`}>
    <${Loaded} resource=${text}>${(data) => html`<div class="stack">
      <${Facts} rows=${[
        ["Schema id", data.summary.id],
        ["GUID", data.summary.guid ? html`<code>${data.summary.guid}</code>` : undefined],
        ["Used by", use ? html`the ${use.part}s of the topic <a href=${to("topics", use.topic)}>${use.topic}</a>` : html`<span class="muted">no topic by this name; other topics may use it by its id</span>`],
        ["Refers to", data.references.length ? data.references.map((each) => html`<div><a href=${`${to("schemas", each.subject)}?version=${each.version}`}>${each.subject} version ${each.version}</a> as <code>${each.name}</code></div>`) : undefined],
        ["Used in", data.referenced_by.length ? data.referenced_by.map((each) => html`<div><a href=${`${to("schemas", each.subject)}?version=${each.version}`}>${each.subject} version ${each.version}</a></div>`) : undefined],
      ]} />
      <${Code} label="Schema" json=${data.summary.schema_type !== "PROTOBUF"} text=${data.pretty} />
    </div>`}<//>
  <//>`;
}

function Compare({ name, versions }) {
  const { query } = usePlace();
  const later = query.get("to") ?? String(versions[0]?.version);
  const before = versions.find((each) => each.version < Number(later)) ?? versions[0];
  const earlier = query.get("from") ?? String(before?.version);
  const diff = useResource(versions.length > 1 ? `/subjects/${part(name)}/diff` : null, { query: { from: earlier, to: later }, pollMs: false });
  if (versions.length < 2) return html`<div class="card"><${Empty} icon="schemas" title="There is one version" command=${`headrace schema register ${name} FILE`}>Register another one to compare them.<//></div>`;
  const options = versions.map((each) => [String(each.version), `Version ${each.version}`]);
  return html`<section class="card" aria-label="Compare">
    <div class="table-tools">
      <${Choice} label="Earlier version" value=${earlier} options=${options} onValue=${(value) => setQuery({ from: value })} />
      <span class="muted">to</span>
      <${Choice} label="Later version" value=${later} options=${options} onValue=${(value) => setQuery({ to: value })} />
      ${diff.data && html`<div class="topbar-end row"><${Badge} tone="ok">${plural(diff.data.added, "line")} added<//><${Badge} tone="crit">${plural(diff.data.removed, "line")} removed<//></div>`}
    </div>
    <${Loaded} resource=${diff}>${(data) => html`<${Diff} lines=${data.lines} />`}<//>
  </section>`;
}

const MARKS = { added: "+", removed: "-", same: " " };
const WORDS = { added: "added: ", removed: "removed: ", same: "" };

/** Lines in the colour of their change; the sign and a word say the same without colour. */
function Diff({ lines }) {
  if (lines.every((each) => each.change === "same")) return html`<${Empty} icon="check" title="No difference">Both versions have the same text.<//>`;
  return html`<div class="diff" role="region" aria-label="Difference" tabindex="0"><table>
    <caption class="visually-hidden">Difference</caption>
    <thead class="visually-hidden"><tr><th scope="col">Earlier line</th><th scope="col">Later line</th><th scope="col">Text</th></tr></thead>
    <tbody>
    ${lines.map((each, i) => html`<tr key=${i} class=${each.change}>
      <td class="number">${each.before}</td><td class="number">${each.after}</td>
      <td class="text"><span aria-hidden="true">${MARKS[each.change]} </span><span class="visually-hidden">${WORDS[each.change]}</span>${each.text}</td>
    </tr>`)}</tbody>
  </table></div>`;
}

function Versions({ name, versions, canChange, onDelete }) {
  return html`<${Card} title="Versions">
    <${DataTable} caption="Versions" rows=${versions} rowKey=${(row) => row.version}
      columns=${[
        { key: "version", label: "Version", name: true, cell: (row) => html`<span class="row nowrap"><a href=${`${to("schemas", name)}?version=${row.version}`}>Version ${row.version}</a>${row.is_deleted && html`<${Badge} tone="warn">deleted<//>`}</span>` },
        { key: "id", label: "Schema id", end: true, cell: (row) => row.id },
        { key: "type", label: "Type", cell: (row) => typeName(row.schema_type) },
        { key: "references", label: "References", end: true, cell: (row) => row.references },
        { key: "compare", label: "Compare", cell: (row) => row.version > 1 && html`<a href=${`${to("schemas", name, "compare")}?from=${row.version - 1}&to=${row.version}`}>with version ${row.version - 1}</a>` },
        { key: "delete", label: "Delete", hidden: true, end: true, cell: (row) => canChange && !row.is_deleted && html`<button type="button" class="button small danger" aria-label=${`Delete version ${row.version}`} onClick=${() => onDelete(row)}>Delete</button>` },
      ]} />
  <//>`;
}

const KEPT = "Messages that were written with it can still be read: it is found by its id until it is deleted for good.";

function DeleteVersion({ name, row, onClose, onDone }) {
  return html`<${Confirm} title=${`Delete version ${row.version} of ${name}?`} action="Delete the version" danger onClose=${onClose} consequences=${[KEPT]}
    run=${async () => {
      await del(`/subjects/${part(name)}/versions/${row.version}`);
      toast(`Deleted version ${row.version} of ${name}.`);
      onDone();
    }} />`;
}

function DeleteSubject({ name, summary, onClose, onDone }) {
  const forGood = summary.is_deleted;
  return html`<${Confirm} title=${forGood ? `Delete ${name} for good?` : `Delete ${name}?`} action=${forGood ? "Delete it for good" : "Delete the subject"} danger typed=${name} onClose=${onClose}
    consequences=${forGood ? ["Messages that were written with its schemas cannot be decoded any more.", "This cannot be undone."] : [`${plural(summary.versions, "version")} deleted.`, KEPT]}
    run=${async () => {
      await del(`/subjects/${part(name)}${forGood ? "?permanent=true" : ""}`);
      toast(`Deleted ${name}${forGood ? " for good" : ""}.`);
      if (forGood) navigate(to("schemas"));
      else onDone();
    }} />`;
}

function LevelDialog({ name, subject, onClose, onDone }) {
  const [level, setLevel] = useState(subject.own_compatibility ?? "");
  const { isBusy, error, start } = useAction(
    () => put(`/subjects/${part(name)}/compatibility`, { level: level || null }),
    () => {
      onClose();
      onDone();
      toast(`Changed the compatibility of ${name}.`);
    },
  );
  const options = [["", "The registry's level"], ...Object.keys(LEVELS).map((each) => [each, levelName(each)])];
  return html`<${Dialog} title=${`Compatibility of ${name}`} onClose=${onClose} onSubmit=${start}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" disabled=${isBusy || level === (subject.own_compatibility ?? "")}>Change</button>`}>
    <${SelectField} label="Level" value=${level} onValue=${setLevel} options=${options} />
    <p class="small second">${level ? LEVELS[level] : "The level of all subjects that have none of their own: headrace schema config"}</p>
    <${ErrorNotice} error=${error} />
  <//>`;
}
