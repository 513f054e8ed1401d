/** Head of a page, and the title of the browser's tab. */
import { html, useEffect } from "../core/html.js";

export function useTitle(title) {
  useEffect(() => {
    document.title = `${title} · Headrace`;
  }, [title]);
}

/** @param {{ title: string, note?: any, badges?: any, children?: any, mono?: boolean }} props children are the actions */
export function PageHead({ title, note, badges, children, hidden = false }) {
  useTitle(title);
  return html`<div class="page-head">
    <div>
      <div class="page-title"><h1 class=${hidden ? "visually-hidden" : ""}>${title}</h1>${badges}</div>
      ${note && html`<p>${note}</p>`}
    </div>
    ${children && html`<div class="actions">${children}</div>`}
  </div>`;
}
