import { html } from "../core/html.js";
import { PageHead } from "../components/page.js";

export function QueuePage() {
  return html`<${PageHead} title="Queue" />`;
}
