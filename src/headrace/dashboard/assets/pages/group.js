import { html } from "../core/html.js";
import { PageHead } from "../components/page.js";

export function GroupPage() {
  return html`<${PageHead} title="Group" />`;
}
