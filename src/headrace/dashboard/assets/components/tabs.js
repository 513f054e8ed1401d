/** Tabs that are addresses. */
import { html } from "../core/html.js";

/** @param {{ label: string, current: string, tabs: { key: string, label: string, href: string, count?: any }[] }} props */
export function Tabs({ label, current, tabs }) {
  return html`<nav class="tabs" aria-label=${label}>
    ${tabs.map(
      (each) => html`<a key=${each.key} href=${each.href} aria-current=${each.key === current ? "page" : undefined}>
        ${each.label}${each.count !== undefined && each.count !== null && html`<span class="count">${each.count}</span>`}
      </a>`,
    )}
  </nav>`;
}
