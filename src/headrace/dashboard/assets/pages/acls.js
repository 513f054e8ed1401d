/** ACLs: who may do what with which resource. */
import { html, useState } from "../core/html.js";
import { del, post } from "../core/api.js";
import { useRights } from "../core/rights.js";
import { Badge } from "../components/badge.js";
import { Confirm, Dialog, useAction } from "../components/dialog.js";
import { SelectField, TextField } from "../components/form.js";
import { Icon } from "../components/icons.js";
import { Empty, ErrorNotice } from "../components/states.js";
import { ListTable } from "../components/table.js";
import { toast } from "../components/toast.js";

export const RESOURCES = ["topic", "queue", "group", "cluster", "transactional_id", "user"];
export const OPERATIONS = ["all", "read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs", "cluster_action", "idempotent_write"];
const lower = (text) => String(text ?? "").toLowerCase();
export const choices = (names) => names.map((each) => [each, each.replaceAll("_", " ")]);
const keyOf = (row) => [row.permission, row.principal, row.operation, row.resource_type, row.pattern_type, row.resource_name, row.host].join(" ");

export function Acls() {
  const { may } = useRights();
  const [dialog, setDialog] = useState(null);
  const [version, setVersion] = useState(0);
  const changed = () => setVersion((now) => now + 1);
  const add = may("alter_cluster") && html`<button type="button" class="button primary" onClick=${() => setDialog({ kind: "add" })}><${Icon} name="plus" />Add a rule</button>`;
  const columns = [
    { key: "principal", label: "Who", name: true, sort: "principal", cell: (row) => html`<span class="truncate">${row.principal}</span>` },
    { key: "permission", label: "Permission", cell: (row) => html`<${Badge} tone=${lower(row.permission) === "deny" ? "crit" : "ok"}>${lower(row.permission)}<//>` },
    { key: "operation", label: "Operation", sort: "operation", cell: (row) => lower(row.operation).replaceAll("_", " ") },
    { key: "resource", label: "Resource", wide: true, cell: (row) => html`<span class="row"><span class="muted">${lower(row.resource_type)}</span><code>${row.resource_name}${row.pattern_type === "prefixed" ? "*" : ""}</code></span>` },
    { key: "host", label: "From", phone: false, cell: (row) => html`<code>${row.host}</code>` },
    { key: "remove", label: "Remove", hidden: true, end: true, cell: (row) => may("alter_cluster") && html`<button type="button" class="button small danger" aria-label=${`Remove the rule ${keyOf(row)}`} onClick=${() => setDialog({ kind: "remove", row })}>Remove</button>` },
  ];
  return html`<${ListTable} path="/acls" caption="ACLs" search="Search by name" sort="principal" version=${version} columns=${columns} rowKey=${keyOf} tools=${add}
      empty=${html`<${Empty} icon="security" title="No rule yet" command="headrace acl add alice --read topic:orders --group billing" action=${add}>Without a rule, only super users may do anything once authorization is on.<//>`} />
    ${dialog?.kind === "add" && html`<${AddAcl} onClose=${() => setDialog(null)} onDone=${changed} />`}
    ${dialog?.kind === "remove" &&
    html`<${Confirm} title="Remove this rule?" action="Remove the rule" danger onClose=${() => setDialog(null)}
      consequences=${[`${dialog.row.principal} may no longer ${lower(dialog.row.operation)} ${lower(dialog.row.resource_type)} ${dialog.row.resource_name}, unless another rule allows it.`, "It holds at once, for open connections, too."]}
      run=${async () => {
        await del("/acls", { rules: [dialog.row] });
        toast("Removed the rule.");
        changed();
      }} />`}`;
}

function AddAcl({ onClose, onDone }) {
  const [rule, setRule] = useState({ principal: "User:", operation: "read", permission: "allow", resource_type: "topic", resource_name: "", pattern_type: "literal", host: "*" });
  const set = (field) => (value) => setRule({ ...rule, [field]: value });
  const { isBusy, error, start } = useAction(
    () => post("/acls", { rules: [{ ...rule, resource_name: rule.resource_type === "cluster" ? undefined : rule.resource_name }] }),
    () => {
      onClose();
      onDone();
      toast("Added the rule.");
    },
  );
  const isReady = rule.principal.length > 5 && (rule.resource_name || rule.resource_type === "cluster");
  return html`<${Dialog} title="Add a rule" onClose=${onClose} onSubmit=${() => isReady && start()}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" disabled=${isBusy || !isReady}>Add</button>`}>
    <div class="form-grid">
      <${TextField} label="Who" value=${rule.principal} onValue=${set("principal")} mono autofocus hint="User:NAME, or User:* for everyone" />
      <${SelectField} label="Permission" value=${rule.permission} onValue=${set("permission")} options=${choices(["allow", "deny"])} />
      <${SelectField} label="Operation" value=${rule.operation} onValue=${set("operation")} options=${choices(OPERATIONS)} />
      <${SelectField} label="Resource" value=${rule.resource_type} onValue=${set("resource_type")} options=${choices(RESOURCES)} />
      <${TextField} label="Name" value=${rule.resource_name} onValue=${set("resource_name")} mono placeholder="orders" disabled=${rule.resource_type === "cluster"} />
      <${SelectField} label="Matches" value=${rule.pattern_type} onValue=${set("pattern_type")} options=${[["literal", "this name"], ["prefixed", "names that begin with it"]]} />
      <${TextField} wide label="From" value=${rule.host} onValue=${set("host")} mono hint="An address, or * for all" />
    </div>
    <${ErrorNotice} error=${error} />
  <//>`;
}
