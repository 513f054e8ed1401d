/** Short notes of what has happened, at the edge of the page. Errors stay until they are closed. */
import { html } from "../core/html.js";
import { createStore, useStore } from "../core/store.js";
import { Icon } from "./icons.js";

const SHOWN_MS = 6000;
const MOST = 4;
const toasts = createStore([]);
let last = 0;

/** @param {string} text @param {"ok" | "crit"} tone */
export function toast(text, tone = "ok") {
  const id = ++last;
  toasts.set((now) => [...now, { id, text, tone }].slice(-MOST));
  if (tone === "ok") setTimeout(() => dismiss(id), SHOWN_MS);
}

const dismiss = (id) => toasts.set((now) => now.filter((each) => each.id !== id));

export function Toasts() {
  const shown = useStore(toasts);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${shown.map(
      (each) => html`<div key=${each.id} class=${`toast ${each.tone}`}>
        <${Icon} name=${each.tone === "ok" ? "check" : "critical"} />
        <p>${each.text}</p>
        <button type="button" class="button quiet small icon-only" aria-label="Close the note" onClick=${() => dismiss(each.id)}><${Icon} name="close" /></button>
      </div>`,
    )}
  </div>`;
}
