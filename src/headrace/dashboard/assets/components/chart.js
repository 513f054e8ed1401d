/**
 * A chart over time, by uPlot: units on the axis, a legend with the newest values, and under the pointer the values of that time.
 * It is made once and gets new data; a change of theme makes it again, since a canvas has no style sheet.
 */
import { html, useEffect, useRef } from "../core/html.js";
import { useStore } from "../core/store.js";
import { theme } from "../core/theme.js";
import { clock, short } from "../core/format.js";
import uPlot from "../vendor/uplot.js";

const HEIGHT = 164;
/** An axis of durations shows at least a second: below it a group is as good as caught up. */
const LEAST = { clock: 1 };
/** An axis shows at least this much: a broker that has just started draws at the right edge. */
const LEAST_S = 300;

/** A colour of the style sheet as the canvas needs it. */
function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

const translucent = (value, share) => value.replace(/^rgb\((.*)\)$/, `rgba($1, ${share})`);

/** Columns for uPlot: times in seconds, then each series. */
function columns(history, series) {
  if (!history) return [[], ...series.map(() => [])];
  const values = series.map((each) => history.series?.[each.name] ?? []);
  // Two at least: uPlot shows a day around a single one.
  const length = Math.max(2, ...values.map((each) => each.length));
  const end = history.end_ms / 1000;
  const times = Array.from({ length }, (_, i) => end - (length - 1 - i) * history.step_s);
  return [times, ...values.map((each) => [...Array(length - each.length).fill(null), ...each])];
}

/** Marks in powers of 1024, for bytes. */
const BINARY = [0, 1, 2, 3, 4].flatMap((power) => [1, 2, 5, 10, 20, 50, 100, 200, 500].map((each) => each * 1024 ** power));

/** Marks in whole seconds, minutes and hours, for durations. */
const CLOCK = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400, 172_800, 604_800];

/** 30.0 k/s as 30 k/s: the marks of an axis are round numbers. */
const mark = (text) => text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");

/** As wide as the longest mark needs. */
const axisWidth = (_, marks) => Math.max(36, ...(marks ?? []).map((each) => 14 + each.length * 6.2));

/** Points without a neighbour, which no line leads to. */
function lonely(values) {
  const has = (i) => (values[i] ?? null) !== null;
  return values.flatMap((_, i) => (has(i) && !has(i - 1) && !has(i + 1) ? [i] : []));
}

function options(series, { format, steps }, width, tip) {
  const text = colour("text-3");
  const grid = colour("grid");
  const axis = { stroke: text, font: "11px Inter, sans-serif", grid: { stroke: grid, width: 1 }, ticks: { show: false } };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
    padding: [10, 18, 0, 0],
    scales: { x: { range: (_, first, last) => [Math.min(first, last - LEAST_S), last] }, y: { range: (_, __, most) => [0, most > 0 ? Math.max(most * 1.12, LEAST[steps] ?? 0) : 1] } },
    axes: [
      { ...axis, size: 26, gap: 6, grid: { show: false }, space: 70, values: (_, marks) => marks.map((each) => clock(each * 1000).slice(0, 5)) },
      { ...axis, size: axisWidth, gap: 6, space: 34, incrs: { binary: BINARY, clock: CLOCK }[steps], values: (_, marks) => marks.map((each) => mark(format(each))) },
    ],
    series: [
      {},
      ...series.map((each, i) => {
        const stroke = colour(`series-${i + 1}`);
        const points = { show: true, size: 4, fill: stroke, filter: (plot, at) => lonely(plot.data[at]) };
        return { label: each.label, stroke, width: 1.6, spanGaps: false, points, fill: i === 0 ? translucent(stroke, 0.1) : undefined };
      }),
    ],
    hooks: { setCursor: [(plot) => showTip(plot, tip, series, format)] },
  };
}

function showTip(plot, tip, series, format) {
  const { idx, left } = plot.cursor;
  if (idx === null || idx === undefined || left < 0) {
    tip.hidden = true;
    return;
  }
  const at = document.createElement("time");
  at.textContent = clock(plot.data[0][idx] * 1000);
  const rows = series.map((each, i) => {
    const row = document.createElement("div");
    const swatch = document.createElement("span");
    swatch.className = `swatch s${i + 1}`;
    const value = document.createElement("b");
    value.textContent = format(plot.data[i + 1][idx]);
    row.append(swatch, each.label, value);
    return row;
  });
  tip.replaceChildren(at, ...rows);
  tip.hidden = false;
  const over = plot.over;
  const x = left + over.offsetLeft + 14;
  const most = over.offsetLeft + over.clientWidth - tip.offsetWidth;
  tip.style.transform = `translate(${x > most ? x - tip.offsetWidth - 28 : x}px, 12px)`;
}

const newest = (points) => [...(points ?? [])].reverse().find((each) => each !== null);

/**
 * @param {{ title: string, history: any, series: { name: string, label: string }[], format?: (value: number) => string, steps?: "binary" | "clock" }} props
 *   `steps` says which numbers are round on its axis; decimal ones by default
 */
export function Chart({ title, history, series, format = short, steps }) {
  const place = useRef(null);
  const tip = useRef(null);
  const plot = useRef(null);
  const { shown } = useStore(theme);
  const names = series.map((each) => each.name).join();

  useEffect(() => {
    const node = place.current;
    const made = new uPlot(options(series, { format, steps }, node.clientWidth || 300, tip.current), columns(history, series), node);
    plot.current = made;
    const sized = new ResizeObserver(() => node.clientWidth && made.setSize({ width: node.clientWidth, height: HEIGHT }));
    sized.observe(node);
    return () => {
      sized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shown, names]);

  useEffect(() => {
    plot.current?.setData(columns(history, series));
  }, [history]);

  const hasData = series.some((each) => newest(history?.series?.[each.name]) !== undefined);
  const values = series.map((each) => `${each.label} ${format(newest(history?.series?.[each.name]))}`);
  return html`<figure class="card" aria-label=${`${title}: ${values.join(", ")}`} role="img">
    <div class="chart-head">
      <h2>${title}</h2>
      <ul class="legend">
        ${series.map(
          (each, i) => html`<li key=${each.name}><span class=${`swatch s${i + 1}`}></span>${each.label} <b>${format(newest(history?.series?.[each.name]))}</b></li>`,
        )}
      </ul>
    </div>
    <div class=${`chart ${hasData ? "" : "without-data"}`}>
      <div ref=${place}></div>
      <div ref=${tip} class="chart-tip" hidden></div>
      ${!hasData && html`<div class="chart-empty">No data yet: a point is added every ${history?.step_s ?? 10} s</div>`}
    </div>
  </figure>`;
}
