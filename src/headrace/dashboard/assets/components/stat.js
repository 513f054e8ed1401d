/** Numbers with a name: a row of them at the top of a page, meters, and lists of facts. */
import { html } from "../core/html.js";

/** @param {{ items: { label: string, value: any, unit?: string, note?: any, tone?: string }[] }} props */
export function Stats({ items, label }) {
  return html`<dl class=${`stats n${items.length}`} aria-label=${label}>
    ${items.map(
      (each) => html`<div key=${each.label} class=${`stat ${each.tone ?? ""}`}>
        <dt>${each.label}</dt>
        <dd>${each.value}${each.unit && html`<small>${each.unit}</small>`}</dd>
        ${each.note !== undefined && html`<dd class="note">${each.note}</dd>`}
      </div>`,
    )}
  </dl>`;
}

/** @param {{ share: number, label: string, tone?: string }} props share from 0 to 1 */
export function Meter({ share, label, tone = "" }) {
  const percent = Math.round(Math.min(1, Math.max(0, share || 0)) * 100);
  return html`<span class=${`meter ${tone}`} role="meter" aria-label=${label} aria-valuemin="0" aria-valuemax="100" aria-valuenow=${percent}>
    <span style=${{ width: `${percent}%` }}></span>
  </span>`;
}

/** @param {{ share: number | null, label: string }} props */
export function Progress({ share, label }) {
  const percent = share === null ? null : Math.round(share * 100);
  return html`<span class="meter" role="progressbar" aria-label=${label} aria-valuemin="0" aria-valuemax="100" aria-valuenow=${percent ?? undefined}>
    <span style=${{ width: `${percent ?? 100}%` }}></span>
  </span>`;
}

/** @param {{ rows: [string, any][] }} props */
export function Facts({ rows }) {
  return html`<dl class="facts">${rows.filter(([, value]) => value !== undefined).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

/** @param {{ title: string, note?: any, end?: any, children: any }} props */
export function Card({ title, note, end, children, body = false }) {
  return html`<section class="card">
    ${title && html`<div class="card-head"><div><h2>${title}</h2>${note && html`<p>${note}</p>`}</div>${end}</div>`}
    ${body ? html`<div class="card-body">${children}</div>` : children}
  </section>`;
}
