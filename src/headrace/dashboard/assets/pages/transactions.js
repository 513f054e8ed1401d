import { html } from "../core/html.js";
import { PageHead } from "../components/page.js";

export function TransactionsPage() {
  return html`<${PageHead} title="Transactions" />`;
}
