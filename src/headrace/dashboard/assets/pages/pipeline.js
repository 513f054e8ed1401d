import { html } from "../core/html.js";
import { PageHead } from "../components/page.js";

export function PipelinePage() {
  return html`<${PageHead} title="Pipeline" />`;
}
