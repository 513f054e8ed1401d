/** Users with their access keys. */
import { html, useState } from "../core/html.js";
import { del, part, post, put } from "../core/api.js";
import { ago } from "../core/format.js";
import { useResource } from "../core/resource.js";
import { useRights } from "../core/rights.js";
import { Badge } from "../components/badge.js";
import { Code } from "../components/code.js";
import { Confirm, Dialog, useAction } from "../components/dialog.js";
import { TextField } from "../components/form.js";
import { Icon } from "../components/icons.js";
import { Empty, ErrorNotice, Loaded } from "../components/states.js";
import { DataTable } from "../components/table.js";
import { toast } from "../components/toast.js";

const nameOf = (row) => row.name ?? row.user;
const listOf = (data) => data.items ?? data.users ?? data.keys ?? data;

export function Users() {
  const users = useResource("/users", { pollMs: 10_000 });
  const { may } = useRights();
  const [dialog, setDialog] = useState(null);
  const close = () => setDialog(null);
  const add = may("alter_cluster") && html`<button type="button" class="button primary" onClick=${() => setDialog({ kind: "add" })}><${Icon} name="plus" />Add a user</button>`;
  const columns = [
    { key: "name", label: "User", name: true, cell: (row) => html`<span class="row"><${Icon} name="user" />${nameOf(row)}</span>` },
    { key: "mechanisms", label: "Logs in with", cell: (row) => html`<span class="row">${(row.mechanisms ?? []).map((each) => html`<${Badge}>${each}<//>`)}</span>` },
    { key: "keys", label: "Access keys", end: true, cell: (row) => html`<button type="button" class="linklike" onClick=${() => setDialog({ kind: "keys", name: nameOf(row) })}>${row.keys ?? row.access_keys ?? "Show"}</button>` },
    {
      key: "actions",
      label: "Actions",
      hidden: true,
      end: true,
      cell: (row) =>
        may("alter_cluster") &&
        html`<button type="button" class="button small" aria-label=${`Change the password of ${nameOf(row)}`} onClick=${() => setDialog({ kind: "password", name: nameOf(row) })}><${Icon} name="key" />Password</button>
          <button type="button" class="button small danger" aria-label=${`Delete ${nameOf(row)}`} onClick=${() => setDialog({ kind: "delete", name: nameOf(row) })}>Delete</button>`,
    },
  ];
  return html`<section class="card" aria-label="Users">
    <div class="card-head"><h2>Users</h2>${add}</div>
    <${Loaded} resource=${users}>${(data) => html`<${DataTable} caption="Users" rows=${listOf(data)} rowKey=${nameOf} columns=${columns}
      empty=${html`<${Empty} icon="user" title="No user yet" command="headrace secure" action=${add}>Users log in with a password; <code>headrace secure</code> makes the first one, certificates and ACLs.<//>`} />`}<//>
    ${(dialog?.kind === "add" || dialog?.kind === "password") && html`<${PasswordDialog} name=${dialog.name} onClose=${close} onDone=${users.reload} />`}
    ${dialog?.kind === "keys" && html`<${Keys} name=${dialog.name} onClose=${close} />`}
    ${dialog?.kind === "delete" &&
    html`<${Confirm} title=${`Delete ${dialog.name}?`} action="Delete the user" danger typed=${dialog.name} onClose=${close}
      consequences=${["Its connections are closed, and it cannot log in again.", "Its access keys stop working.", "Its ACLs stay, for a user of the same name."]}
      run=${async () => {
        await del(`/users/${part(dialog.name)}`);
        toast(`Deleted ${dialog.name}.`);
        users.reload();
      }} />`}
  </section>`;
}

/** A new user, or a new password of one. */
function PasswordDialog({ name, onClose, onDone }) {
  const [user, setUser] = useState(name ?? "");
  const [password, setPassword] = useState("");
  const { isBusy, error, start } = useAction(
    () => (name ? put(`/users/${part(name)}/password`, { password }) : post("/users", { name: user, password })),
    () => {
      onClose();
      onDone();
      toast(name ? `Changed the password of ${name}.` : `Added ${user}.`);
    },
  );
  return html`<${Dialog} title=${name ? `Password of ${name}` : "Add a user"} onClose=${onClose} onSubmit=${() => user && password && start()}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" disabled=${isBusy || !user || !password}>${isBusy ? "Working…" : name ? "Change" : "Add"}</button>`}>
    ${!name && html`<${TextField} label="Name" value=${user} onValue=${setUser} mono autocomplete="off" autofocus />`}
    <${TextField} label="Password" type="password" value=${password} onValue=${setPassword} autocomplete="new-password" hint=${name ? "Clients with the old one have to log in again." : "A user may do nothing until an ACL allows it."} />
    <${ErrorNotice} error=${error} />
  <//>`;
}

function Keys({ name, onClose }) {
  const path = `/users/${part(name)}/keys`;
  const keys = useResource(path, { pollMs: false });
  const [made, setMade] = useState(null);
  const create = useAction(() => post(path), (key) => {
    setMade(key);
    keys.reload();
  });
  const remove = useAction((id) => del(`${path}/${part(id)}`), keys.reload);
  return html`<${Dialog} title=${`Access keys of ${name}`} onClose=${onClose}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Close</button><button type="button" class="button primary" disabled=${create.isBusy} onClick=${create.start}>Create a key</button>`}>
    <p class="small second">SQS clients sign their requests with a key.</p>
    ${made && html`<div class="notice"><${Icon} name="key" /><p>The secret is shown once: copy it now.</p></div><${Code} label="New key" text=${`AWS_ACCESS_KEY_ID=${made.id}\nAWS_SECRET_ACCESS_KEY=${made.secret}`} />`}
    <${Loaded} resource=${keys}>${(data) => html`<${DataTable} caption="Access keys" rows=${listOf(data)} rowKey=${(row) => row.id}
      empty=${html`<p class="empty small second">No key yet.</p>`}
      columns=${[
        { key: "id", label: "Key", name: true, cell: (row) => html`<code>${row.id}</code>` },
        { key: "created", label: "Created", cell: (row) => ago(row.created_ms ?? row.created) },
        { key: "delete", label: "Delete", hidden: true, end: true, cell: (row) => html`<button type="button" class="button small danger" aria-label=${`Delete the key ${row.id}`} onClick=${() => remove.start(row.id)}>Delete</button>` },
      ]} />`}<//>
    <${ErrorNotice} error=${create.error ?? remove.error} />
  <//>`;
}
