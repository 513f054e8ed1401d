import { html } from "../core/html.js";
import { PageHead } from "../components/page.js";

export function TopicsPage() {
  return html`<${PageHead} title="Topics" />`;
}
