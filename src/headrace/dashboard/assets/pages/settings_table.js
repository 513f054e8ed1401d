/** Settings with their documentation: searched, changed after a preview of what changes, and reset. */
import { html, useState } from "../core/html.js";
import { patch } from "../core/api.js";
import { useResource } from "../core/resource.js";
import { useRights } from "../core/rights.js";
import { setQuery, usePlace } from "../core/router.js";
import { Badge } from "../components/badge.js";
import { Dialog, useAction } from "../components/dialog.js";
import { Check, SelectField, TextField } from "../components/form.js";
import { Icon } from "../components/icons.js";
import { Empty, ErrorNotice, Loaded } from "../components/states.js";
import { DataTable, SearchField } from "../components/table.js";
import { toast } from "../components/toast.js";

/** @param {{ path: string, subject: string }} props `subject` is what they are settings of, for people */
export function SettingsTable({ path, subject }) {
  const settings = useResource(path, { pollMs: false });
  return html`<${Loaded} resource=${settings}>${(data) => html`<${SettingRows} rows=${data.items ?? data} path=${path} subject=${subject} reload=${settings.reload} />`}<//>`;
}

export function SettingRows({ rows, path, subject, reload }) {
  const { query } = usePlace();
  const { canChange } = useRights();
  const [edited, setEdited] = useState(null);
  const text = (query.get("setting") ?? "").toLowerCase();
  const onlyChanged = query.get("changed") === "1";
  const shown = rows.filter((row) => (!onlyChanged || !row.is_default) && `${row.name} ${row.doc}`.toLowerCase().includes(text));
  return html`<section class="card" aria-label="Settings">
    <div class="table-tools">
      <${SearchField} label="Search settings" value=${query.get("setting") ?? ""} field="setting" />
      <${Check} label="Changed only" value=${onlyChanged} onValue=${(on) => setQuery({ changed: on ? "1" : null })} />
    </div>
    <${DataTable} caption="Settings" rows=${shown} rowKey=${(row) => row.name}
      empty=${html`<${Empty} icon="search" title="No setting matches">Clear the search, or show all settings.<//>`}
      columns=${[
        { key: "name", label: "Setting", wide: true, cell: (row) => html`<div class="setting"><code>${row.name}</code><span class="tiny muted">${row.doc}</span></div>` },
        { key: "value", label: "Value", wide: true, cell: (row) => html`<span class="row"><code>${row.value ?? "hidden"}</code>${!row.is_default && html`<${Badge} tone="info">${row.source ?? "changed"}<//>`}</span>` },
        { key: "default", label: "Default", phone: false, cell: (row) => html`<code class="muted">${row.default ?? "–"}</code>` },
        {
          key: "edit",
          label: "Change",
          hidden: true,
          end: true,
          cell: (row) => canChange && !row.is_read_only && html`<button type="button" class="button small" aria-label=${`Change ${row.name}`} onClick=${() => setEdited(row)}><${Icon} name="edit" />Change</button>`,
        },
      ]} />
    ${edited && html`<${EditSetting} row=${edited} path=${path} subject=${subject} onClose=${() => setEdited(null)} onDone=${reload} />`}
  </section>`;
}

function EditSetting({ row, path, subject, onClose, onDone }) {
  const [value, setValue] = useState(row.value ?? "");
  const [isReset, setReset] = useState(false);
  const body = (dry_run) => ({ set: isReset ? {} : { [row.name]: value }, reset: isReset ? [row.name] : [], dry_run });
  const { isBusy, error, start } = useAction(
    async () => {
      // Checked first, so that a value that does not fit changes nothing.
      await patch(path, body(true));
      return patch(path, body(false));
    },
    () => {
      onClose();
      onDone();
      toast(`Changed ${row.name} of ${subject}.`);
    },
  );
  const choices = row.choices?.length ? row.choices : /^bool/.test(row.type ?? "") ? ["true", "false"] : null;
  const after = isReset ? row.default : value;
  return html`<${Dialog} title=${row.name} onClose=${onClose} onSubmit=${start}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" disabled=${isBusy || after === row.value}>${isBusy ? "Changing…" : "Change"}</button>`}>
    <p class="small second">${row.doc}</p>
    ${!isReset && (choices
      ? html`<${SelectField} label="Value" value=${value} onValue=${setValue} options=${choices.map((each) => [each, each])} />`
      : html`<${TextField} label="Value" value=${value} onValue=${setValue} mono autofocus />`)}
    ${!row.is_default && html`<${Check} label=${`Back to the default (${row.default})`} value=${isReset} onValue=${setReset} />`}
    <div class="notice"><${Icon} name="info" /><p>On ${subject}, <code>${row.name}</code> changes from <code>${row.value ?? "hidden"}</code> to <code>${after}</code>, at once and without a restart.</p></div>
    <${ErrorNotice} error=${error} />
  <//>`;
}
