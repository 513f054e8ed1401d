import { html } from "../core/html.js";
import { PageHead } from "../components/page.js";

export function ClusterPage() {
  return html`<${PageHead} title="Cluster" />`;
}
