/** A small line without axes, for a cell of a table. */
import { html } from "../core/html.js";

const WIDTH = 96;
const HEIGHT = 24;

/** @param {{ points: (number | null)[], label: string }} props */
export function Sparkline({ points, label }) {
  const known = (points ?? []).filter((each) => each !== null);
  if (known.length < 2) return html`<span class="muted tiny" aria-hidden="true">–</span>`;
  const top = Math.max(...known, 0) || 1;
  const step = WIDTH / (points.length - 1);
  let line = "";
  let isDown = false;
  points.forEach((value, i) => {
    if (value === null) {
      isDown = false;
      return;
    }
    line += `${isDown ? "L" : "M"}${(i * step).toFixed(1)} ${(HEIGHT - 2 - (value / top) * (HEIGHT - 4)).toFixed(1)}`;
    isDown = true;
  });
  return html`<svg class="spark" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label=${label}>
    ${!points.includes(null) && html`<path class="area" d=${`${line}L${WIDTH} ${HEIGHT}L0 ${HEIGHT}Z`} />`}
    <path d=${line} />
  </svg>`;
}
