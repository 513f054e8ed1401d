/** An address without a page. */
import { html } from "../core/html.js";
import { to } from "../core/router.js";
import { Empty } from "../components/states.js";
import { useTitle } from "../components/page.js";

export function NotFoundPage({ path }) {
  useTitle("Not found");
  return html`<div class="card">
    <h1 class="visually-hidden">Not found</h1>
    <${Empty} icon="search" title="There is no page here" action=${html`<div class="row"><a class="button primary" href=${to()}>Go to the overview</a><a class="button" href=${to("topics")}>Topics</a></div>`}>
      The dashboard has nothing at <code>${path}</code>. Check the address, or press <kbd>Ctrl</kbd> <kbd>K</kbd> and type a name.
    <//>
  </div>`;
}
