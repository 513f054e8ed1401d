import { html } from "../core/html.js";
import { PageHead } from "../components/page.js";

export function ClientsPage() {
  return html`<${PageHead} title="Clients" />`;
}
