import { html } from "../core/html.js";
import { PageHead } from "../components/page.js";

export function SecurityPage() {
  return html`<${PageHead} title="Security" />`;
}
