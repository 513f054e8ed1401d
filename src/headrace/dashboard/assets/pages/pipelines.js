import { html } from "../core/html.js";
import { PageHead } from "../components/page.js";

export function PipelinesPage() {
  return html`<${PageHead} title="Pipelines" />`;
}
