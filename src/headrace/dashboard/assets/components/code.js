/** Payloads and commands: JSON in colours, text as it is, a button that copies. Tokens become elements; nothing is parsed as HTML. */
import { html, useState } from "../core/html.js";
import { Icon } from "./icons.js";

const TOKENS = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|\b(true|false|null)\b/g;
const MOST_COLOURED = 100_000;

function tokens(text) {
  const pieces = [];
  let end = 0;
  for (const found of text.matchAll(TOKENS)) {
    if (found.index > end) pieces.push(text.slice(end, found.index));
    const kind = found[1] ? (found[2] ? "key" : "string") : found[3] ? "number" : "word";
    pieces.push(html`<span class=${`tok-${kind}`}>${found[1] ?? found[0]}</span>`);
    if (found[2]) pieces.push(found[2]);
    end = found.index + found[0].length;
  }
  pieces.push(text.slice(end));
  return pieces;
}

/** @returns {string | null} the text as indented JSON, or null if it is none */
export function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

/** @param {{ text: string, json?: boolean, label?: string }} props */
export function Code({ text, json = false, label = "Payload" }) {
  return html`<div class="code">
    <pre tabindex="0" aria-label=${label} role="region">${json && text.length < MOST_COLOURED ? tokens(text) : text}</pre>
    <span class="copy"><${CopyButton} text=${text} /></span>
  </div>`;
}

export function CopyButton({ text, label = "Copy" }) {
  const [isCopied, setCopied] = useState(false);
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      return;
    }
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  }
  return html`<button type="button" class="button quiet small icon-only" aria-label=${isCopied ? "Copied" : label} title=${isCopied ? "Copied" : label} onClick=${copy}>
    <${Icon} name=${isCopied ? "check" : "copy"} />
  </button>`;
}

/** A command for the terminal. */
export function Command({ text }) {
  return html`<div class="command"><code>${text}</code><${CopyButton} text=${text} label="Copy the command" /></div>`;
}

/** A sentence in which `words between backticks` are code. */
export function Prose({ text }) {
  return String(text ?? "")
    .split("`")
    .map((each, i) => (i % 2 ? html`<code>${each}</code>` : each));
}
