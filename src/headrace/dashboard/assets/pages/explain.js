/** Why someone may, or may not, do something: the rule that decides, or the command that adds the missing one. */
import { html, useState } from "../core/html.js";
import { useResource } from "../core/resource.js";
import { setQuery, usePlace } from "../core/router.js";
import { Prose } from "../components/code.js";
import { SelectField, TextField } from "../components/form.js";
import { Icon } from "../components/icons.js";
import { Card } from "../components/stat.js";
import { Empty, Failed } from "../components/states.js";
import { choices, OPERATIONS, RESOURCES } from "./acls.js";

const FIELDS = { user: "", operation: "read", resource: "topic", name: "" };

export function Explain() {
  const { query } = usePlace();
  const [asked, setAsked] = useState(Object.fromEntries(Object.entries(FIELDS).map(([field, value]) => [field, query.get(field) ?? value])));
  const set = (field) => (value) => setAsked({ ...asked, [field]: value });
  function submit(event) {
    event.preventDefault();
    setQuery(asked, { replace: false });
  }
  return html`<${Card} title="Explain a decision" note="May this user do that, and which rule says so?" body>
    <form class="stack" onSubmit=${submit}>
      <div class="form-grid">
        <${TextField} label="User" value=${asked.user} onValue=${set("user")} mono placeholder="alice" />
        <${SelectField} label="Operation" value=${asked.operation} onValue=${set("operation")} options=${choices(OPERATIONS.slice(1))} />
        <${SelectField} label="Resource" value=${asked.resource} onValue=${set("resource")} options=${choices(RESOURCES)} />
        <${TextField} label="Name" value=${asked.name} onValue=${set("name")} mono placeholder="orders" disabled=${asked.resource === "cluster"} />
      </div>
      <div><button class="button primary" disabled=${!asked.user}>Explain</button></div>
    </form>
    ${query.get("user") && html`<${Decision} query=${Object.fromEntries(Object.keys(FIELDS).map((field) => [field, query.get(field) ?? undefined]))} />`}
  <//>`;
}

function Decision({ query }) {
  const found = useResource("/acls/explain", { query, pollMs: false });
  if (found.error) return html`<${Failed} error=${found.error} retry=${found.reload} />`;
  if (!found.data) return html`<${Empty} icon="clock" title="Asking" />`;
  const { allowed: yes, reason } = found.data;
  return html`<div class=${`notice decision ${yes ? "ok" : "crit"}`} role="status"><${Icon} name=${yes ? "check" : "critical"} />
    <div class="stack-s"><p><b>${yes ? "Allowed" : "Denied"}:</b> <${Prose} text=${reason} /></p></div></div>`;
}
