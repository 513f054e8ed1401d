/** The list of keys. */
import { html } from "../core/html.js";
import { PLACES } from "../core/keys.js";
import { Dialog } from "./dialog.js";

export function KeyHelp({ onClose }) {
  return html`<${Dialog} title="Keyboard shortcuts" onClose=${onClose}>
    <dl class="keys">
      <dt><kbd>/</kbd></dt><dd>Search in this page</dd>
      <dt><kbd>Ctrl</kbd> <kbd>K</kbd></dt><dd>Jump to a topic, group, queue or page</dd>
      ${PLACES.map(([key, , label]) => html`<dt key=${key}><kbd>g</kbd> <kbd>${key}</kbd></dt><dd>Go to ${label}</dd>`)}
      <dt><kbd>\\</kbd></dt><dd>Change the theme</dd>
      <dt><kbd>Esc</kbd></dt><dd>Close a dialog, leave a field</dd>
      <dt><kbd>?</kbd></dt><dd>Show this list</dd>
    </dl>
  <//>`;
}
