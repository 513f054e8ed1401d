/** The graph of a pipeline, from its sources through its steps to its sinks: columns by distance from the sources, edges as curves. */
import { html } from "../core/html.js";
import { to } from "../core/router.js";

const NODE = { width: 168, height: 56, gapX: 44, gapY: 20, margin: 8 };

/** Each node's column: one more than the furthest of those before it. Edges that close a circle are not followed. */
export function levels(nodes, edges) {
  const level = new Map(nodes.map((each) => [each.id, 0]));
  for (let turn = 0; turn < nodes.length; turn += 1) {
    let isDone = true;
    for (const [from, end] of edges) {
      if (!level.has(from) || !level.has(end)) continue;
      const wanted = level.get(from) + 1;
      if (wanted > level.get(end) && wanted < nodes.length) {
        level.set(end, wanted);
        isDone = false;
      }
    }
    if (isDone) break;
  }
  // A source stands just before its first reader, so that its edge crosses no node.
  for (const each of nodes) {
    const readers = edges.filter(([from, end]) => from === each.id && level.has(end)).map(([, end]) => level.get(end));
    if (!edges.some(([, end]) => end === each.id) && readers.length) level.set(each.id, Math.max(0, Math.min(...readers) - 1));
  }
  return level;
}

function layout(graph) {
  const nodes = graph.nodes ?? [];
  const edges = (graph.edges ?? []).map((each) => (Array.isArray(each) ? each : [each.from ?? each.source, each.to ?? each.target]));
  const level = levels(nodes, edges);
  const columns = [];
  for (const each of nodes) (columns[level.get(each.id)] ??= []).push(each);
  const tallest = Math.max(1, ...columns.filter(Boolean).map((each) => each.length));
  const height = tallest * (NODE.height + NODE.gapY) - NODE.gapY + 2 * NODE.margin;
  const place = new Map();
  columns.filter(Boolean).forEach((column, x) => {
    const used = column.length * (NODE.height + NODE.gapY) - NODE.gapY;
    column.forEach((each, y) => place.set(each.id, { x: NODE.margin + x * (NODE.width + NODE.gapX), y: (height - used) / 2 + y * (NODE.height + NODE.gapY) }));
  });
  const width = columns.filter(Boolean).length * (NODE.width + NODE.gapX) - NODE.gapX + 2 * NODE.margin;
  return { nodes, edges: edges.filter(([a, b]) => place.has(a) && place.has(b)), place, width, height };
}

function curve(from, end) {
  const [x1, y1, x2, y2] = [from.x + NODE.width, from.y + NODE.height / 2, end.x - 5, end.y + NODE.height / 2];
  const bend = Math.max(28, (x2 - x1) / 2);
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

export function PipelineGraph({ graph }) {
  const { nodes, edges, place, width, height } = layout(graph);
  if (!nodes.length) return html`<p class="empty small second">The pipeline has not reported its graph yet.</p>`;
  const label = `Graph: ${edges.map(([a, b]) => `${name(nodes, a)} to ${name(nodes, b)}`).join(", ")}`;
  return html`<div class="graph" tabindex="0" role="region" aria-label="Graph of the pipeline">
    <svg viewBox=${`0 0 ${width} ${height}`} style=${{ maxWidth: `${width}px`, minWidth: `${Math.min(width, 760)}px` }} role="group" aria-label=${label}>
      <defs><marker id="arrow" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" class="arrow" /></marker></defs>
      ${edges.map(([a, b]) => html`<path key=${`${a} ${b}`} class="edge" d=${curve(place.get(a), place.get(b))} marker-end="url(#arrow)" />`)}
      ${nodes.map((each) => html`<${Node} key=${each.id} node=${each} at=${place.get(each.id)} />`)}
    </svg>
  </div>`;
}

const name = (nodes, id) => nodes.find((each) => each.id === id)?.name ?? id;

function Node({ node, at }) {
  const topic = node.type === "topic" || node.kind === "dead-letters" ? (node.detail || node.name).split(",")[0].trim() : null;
  const body = html`<g class=${`node ${node.kind}`} transform=${`translate(${at.x} ${at.y})`}>
    <title>${`${node.kind}: ${node.name}${node.detail ? `, ${node.detail}` : ""}`}</title>
    <rect width=${NODE.width} height=${NODE.height} rx="9" />
    <rect class="bar" width="4" height=${NODE.height - 20} x="10" y="10" rx="2" />
    <text x="24" y="23" class="node-kind">${[node.kind.replace("-", " "), node.type].filter(Boolean).join(" · ")}</text>
    <text x="24" y="42" class="node-name">${cut(node.name, 18)}</text>
  </g>`;
  return topic ? html`<a href=${to("topics", topic)}>${body}</a>` : body;
}
