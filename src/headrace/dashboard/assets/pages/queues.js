import { html } from "../core/html.js";
import { PageHead } from "../components/page.js";

export function QueuesPage() {
  return html`<${PageHead} title="Queues" />`;
}
