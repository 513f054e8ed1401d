/** The subjects of the schema registry, and registering a schema. */
import { html, useState } from "../core/html.js";
import { part, post } from "../core/api.js";
import { count } from "../core/format.js";
import { useRights } from "../core/rights.js";
import { navigate, setQuery, to, usePlace } from "../core/router.js";
import { Badge } from "../components/badge.js";
import { Dialog, useAction } from "../components/dialog.js";
import { Check, SelectField, TextArea, TextField } from "../components/form.js";
import { Icon } from "../components/icons.js";
import { PageHead } from "../components/page.js";
import { Empty, ErrorNotice } from "../components/states.js";
import { ListTable } from "../components/table.js";
import { toast } from "../components/toast.js";

export const TYPES = [["AVRO", "Avro"], ["JSON", "JSON Schema"], ["PROTOBUF", "Protobuf"]];
export const typeName = (type) => TYPES.find(([key]) => key === type)?.[1] ?? type;

const COLUMNS = [
  { key: "subject", label: "Subject", name: true, sort: "subject", cell: (row) => html`<span class="row nowrap"><a class="truncate" href=${to("schemas", row.subject)}>${row.subject}</a>${row.is_deleted && html`<${Badge} tone="warn">deleted<//>`}</span>` },
  { key: "type", label: "Type", sort: "schema_type", cell: (row) => html`<${Badge}>${typeName(row.schema_type)}<//>` },
  { key: "versions", label: "Versions", end: true, sort: "versions", cell: (row) => count(row.versions) },
  { key: "latest", label: "Newest", end: true, sort: "version", cell: (row) => row.version },
  { key: "id", label: "Schema id", end: true, sort: "id", cell: (row) => row.id },
  { key: "compatibility", label: "Compatibility", sort: "compatibility", cell: (row) => row.compatibility.toLowerCase().replace("_", " ") },
  { key: "mode", label: "Mode", phone: false, sort: "mode", cell: (row) => (row.mode === "READWRITE" ? html`<span class="muted">read and write</span>` : html`<${Badge} tone="warn">${row.mode.toLowerCase().replace("_", " ")}<//>`) },
];

export function SchemasPage() {
  const { query } = usePlace();
  const { canChange } = useRights();
  const [isRegistering, setRegistering] = useState(query.get("register") === "1");
  const register = canChange && html`<button type="button" class="button primary" onClick=${() => setRegistering(true)}><${Icon} name="plus" />Register a schema</button>`;
  const deleted = query.get("deleted") === "true";
  return html`<${PageHead} title="Schemas" note="What messages look like, and which changes consumers and producers survive.">${register}<//>
    <${ListTable} path="/subjects" caption="Subjects" search="Search subjects" sort="subject" columns=${COLUMNS} rowKey=${(row) => row.subject}
      query=${{ deleted: deleted ? "true" : undefined }}
      filters=${html`<${Check} label="Deleted ones" value=${deleted} onValue=${(on) => setQuery({ deleted: on ? "true" : null, page: null })} />`}
      empty=${html`<${Empty} icon="schemas" title="No schema yet" command="headrace schema register orders-value order.avsc" action=${register}>
        Register one here, in the terminal, or let the serializers of any Schema Registry client do it. A change that would break readers is then refused.
      <//>`} />
    ${isRegistering && html`<${RegisterDialog} onClose=${() => setRegistering(false)} onDone=${(subject) => navigate(to("schemas", subject))} />`}`;
}

const SAMPLE = `{
  "type": "record",
  "name": "Order",
  "fields": [{ "name": "sku", "type": "string" }]
}`;

/** @param {{ subject?: string, type?: string, text?: string, onDone: (subject: string) => void, onClose: () => void }} props for a new version, or a new subject */
export function RegisterDialog({ subject: given = "", type: before = "AVRO", text: newest = SAMPLE, references = [], onDone, onClose }) {
  const [subject, setSubject] = useState(given);
  const [type, setType] = useState(before);
  const [text, setText] = useState(newest);
  const [checked, setChecked] = useState(null);
  const path = `/subjects/${part(subject)}`;
  const body = { schema: text, schema_type: type, references };
  const check = useAction(async () => setChecked(await post(`${path}/check`, body)));
  const register = useAction(
    () => post(`${path}/versions`, body),
    (answer) => {
      onClose();
      onDone(subject);
      toast(`${subject} has version ${answer.version}, with the schema id ${answer.id}.`);
    },
  );
  const isReady = subject && text.trim() && !register.isBusy;
  function typed(value) {
    setText(value);
    setChecked(null);
  }
  return html`<${Dialog} wide title=${given ? `A new version of ${given}` : "Register a schema"} onClose=${onClose} onSubmit=${() => isReady && register.start()}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button>
      <button type="button" class="button" disabled=${!isReady || check.isBusy} onClick=${check.start}>Check</button>
      <button class="button primary" disabled=${!isReady}>${register.isBusy ? "Registering…" : "Register"}</button>`}>
    ${!given && html`<${TextField} label="Subject" value=${subject} onValue=${setSubject} mono autofocus required placeholder="orders-value" hint="The topic, then -value or -key." />
      <${SelectField} label="Type" value=${type} onValue=${setType} options=${TYPES} />`}
    <${TextArea} label="Schema" value=${text} onValue=${typed} rows=${14} />
    ${checked && html`<${Verdict} checked=${checked} />`}
    <${ErrorNotice} error=${register.error ?? check.error} />
  <//>`;
}

function Verdict({ checked }) {
  if (checked.is_compatible) return html`<div class="notice ok" role="status"><${Icon} name="check" /><p>It can be registered: it is compatible with the versions that are there.</p></div>`;
  return html`<div class="notice crit" role="status"><${Icon} name="critical" /><div class="stack-s"><p>It would be refused:</p>
    <ul class="consequences">${checked.messages.slice(0, 20).map((each) => html`<li>${each}</li>`)}</ul></div></div>`;
}
