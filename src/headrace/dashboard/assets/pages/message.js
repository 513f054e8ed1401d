/** One message: its value as JSON or raw, key, headers and where it is. */
import { html, useState } from "../core/html.js";
import { bytes, time } from "../core/format.js";
import { to } from "../core/router.js";
import { Badge } from "../components/badge.js";
import { Code, prettyJson } from "../components/code.js";
import { Dialog } from "../components/dialog.js";
import { Segmented } from "../components/form.js";
import { Facts } from "../components/stat.js";

const PREVIEW_CHARACTERS = 160;

/** The value in one line. */
export function preview(message) {
  const value = message.value ?? message.body;
  if (value === null || value === undefined) return "tombstone";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.slice(0, PREVIEW_CHARACTERS * 2).replace(/\s+/g, " ").slice(0, PREVIEW_CHARACTERS);
}

/** Formats whose values are shown as JSON. */
const AS_JSON = new Set(["json", "avro", "json-schema", "protobuf"]);

const asText = (value) => (value === null || value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));

export function MessageDetail({ message, onClose }) {
  return html`<${Dialog} wide title=${`Partition ${message.partition}, offset ${message.offset}`} onClose=${onClose}>
    <${Facts} rows=${[
      ["Time", time(message.timestamp_ms, { withMs: true })],
      ["Key", message.key === null ? html`<span class="muted">none</span>` : html`<code>${message.key}</code> ${message.key_encoding !== "text" && html`<${Badge}>${message.key_encoding}<//>`}`],
      ["Size", bytes(message.size_bytes)],
      ["Schema", message.subject ? html`<a href=${`${to("schemas", message.subject)}?version=${message.version}`}>${message.subject} version ${message.version}</a>, id ${message.schema_id}` : message.schema_id ? `id ${message.schema_id}, which is not known here` : undefined],
    ]} />
    <${Payload} text=${asText(message.value)} encoding=${message.value_encoding} isNull=${message.value === null} truncated=${message.truncated} />
    <${Headers} headers=${message.headers ?? []} />
  <//>`;
}

/** A payload that can be read as JSON or as it was sent. */
export function Payload({ text, encoding, isNull = false, truncated = false, label = "Value" }) {
  const pretty = prettyJson(text);
  const [view, setView] = useState(pretty ? "json" : "raw");
  const raw = pretty && AS_JSON.has(encoding) ? compact(text) : text;
  return html`<div class="stack-s">
    <div class="row spread"><h3>${label} ${encoding && html`<${Badge}>${encoding}<//>`} ${truncated && html`<${Badge} tone="warn" title="Only the beginning is shown">cut<//>`}</h3>
      ${pretty && html`<${Segmented} label="View" value=${view} onValue=${setView} options=${[["json", "JSON"], ["raw", "Raw"]]} />`}</div>
    ${isNull
      ? html`<p class="small second">A tombstone: a key without a value. In a compacted topic it deletes the key.</p>`
      : html`<${Code} label=${label} json=${view === "json" && pretty !== null} text=${view === "json" && pretty ? pretty : raw} />`}
  </div>`;
}

function compact(text) {
  try {
    return JSON.stringify(JSON.parse(text));
  } catch {
    return text;
  }
}

export function Headers({ headers }) {
  if (!headers.length) return html`<p class="tiny muted">No headers</p>`;
  return html`<div class="stack-s"><h3>Headers</h3>
    <dl class="facts">${headers.map(([name, value]) => html`<dt><code>${name}</code></dt><dd><code>${value ?? "null"}</code></dd>`)}</dl></div>`;
}
