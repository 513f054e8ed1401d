/** Security: users and their keys, ACLs with an explanation of a decision, and the audit log. */
import { html } from "../core/html.js";
import { session } from "../core/api.js";
import { to } from "../core/router.js";
import { useStore } from "../core/store.js";
import { Icon } from "../components/icons.js";
import { PageHead } from "../components/page.js";
import { Tabs } from "../components/tabs.js";
import { Acls } from "./acls.js";
import { Audit } from "./audit.js";
import { Explain } from "./explain.js";
import { Users } from "./users.js";

export function SecurityPage({ tab = "users" }) {
  const who = useStore(session);
  return html`<${PageHead} title="Security" note="Who may connect, and who may do what." />
    ${who && !who.authentication && html`<div class="notice warn"><${Icon} name="warning" /><p>Authorization is off: everything is allowed from the broker's machine. Turn it on with <code>headrace secure</code>.</p></div>`}
    <${Tabs} label="Parts of security" current=${tab} tabs=${[
      { key: "users", label: "Users", href: to("security") },
      { key: "acls", label: "ACLs", href: to("security", "acls") },
      { key: "explain", label: "Explain", href: to("security", "explain") },
      { key: "audit", label: "Audit log", href: to("security", "audit") },
    ]} />
    ${tab === "users" && html`<${Users} />`}
    ${tab === "acls" && html`<${Acls} />`}
    ${tab === "explain" && html`<${Explain} />`}
    ${tab === "audit" && html`<${Audit} />`}`;
}
