import { html } from "../core/html.js";
import { PageHead } from "../components/page.js";

export function GroupsPage() {
  return html`<${PageHead} title="Groups" />`;
}
