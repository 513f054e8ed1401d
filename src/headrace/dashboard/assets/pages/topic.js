import { html } from "../core/html.js";
import { PageHead } from "../components/page.js";

export function TopicPage() {
  return html`<${PageHead} title="Topic" />`;
}
