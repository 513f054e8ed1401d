/** Icons as lines on a grid of 24, drawn for this dashboard. */
import { html } from "../core/html.js";

const PATHS = {
  overview: "M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-3H4zM14 7h6V4h-6z",
  topics: "M4 6h16M4 12h16M4 18h10",
  groups: "M9 11a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7zM2.500 20c.6-3.600 3.200-5.500 6.500-5.500s5.900 1.900 6.500 5.500M16 4.300a3.500 3.500 0 0 1 0 6.400M18.500 14.900c1.700.9 2.700 2.600 3 5.100",
  queues: "M3 8h18v8H3zM9 8v8M15 8v8",
  transactions: "M4 8h14l-3.500-3.500M20 16H6l3.500 3.500",
  pipelines: "M5 8.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5zM19 20.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5zM7.500 6H14a4 4 0 0 1 4 4v5.500",
  cluster: "M4 4h16v6H4zM4 14h16v6H4zM7.500 7h.01M7.500 17h.01",
  links: "M10 14a4 4 0 0 0 5.700 0l3-3a4 4 0 0 0-5.700-5.700l-1.500 1.500M14 10a4 4 0 0 0-5.700 0l-3 3a4 4 0 0 0 5.700 5.700l1.500-1.500",
  clients: "M3 5h18v11H3zM8 20h8M12 16v4",
  security: "M12 3l7.500 3v5.500c0 4.500-3 8-7.500 9.500-4.500-1.500-7.500-5-7.500-9.500V6zM9 12l2.200 2.200L15.200 10",
  schemas: "M8 4H6.500A2.500 2.500 0 0 0 4 6.500V9a3 3 0 0 1-1.500 3A3 3 0 0 1 4 15v2.500A2.500 2.500 0 0 0 6.500 20H8M16 4h1.500A2.500 2.500 0 0 1 20 6.500V9a3 3 0 0 0 1.500 3 3 3 0 0 0-1.500 3v2.500a2.500 2.500 0 0 1-2.500 2.500H16",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM20.500 20.500L16 16",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2.500v2M12 19.500v2M2.500 12h2M19.500 12h2M5.300 5.300l1.400 1.400M17.300 17.300l1.400 1.400M5.300 18.700l1.400-1.400M17.300 6.700l1.400-1.400",
  moon: "M20 14.500A8.500 8.500 0 0 1 9.500 4a8.500 8.500 0 1 0 10.500 10.500z",
  system: "M12 20a8 8 0 1 0 0-16 8 8 0 0 0 0 16zM12 4v16M12 8l5-2M12 12h8M12 16l5 2",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  plus: "M12 5v14M5 12h14",
  trash: "M4 7h16M9 7V4h6v3M6.500 7l1 13h9l1-13M10 11v5M14 11v5",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 12.500l4.500 4.500L19 7.500",
  warning: "M12 4l9 16H3zM12 10v4.500M12 17.300v.01",
  info: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 11v5.500M12 7.700v.01",
  critical: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7.500v5.500M12 16.300v.01",
  up: "M6 15l6-6 6 6",
  down: "M6 9l6 6 6-6",
  right: "M9 6l6 6-6 6",
  left: "M15 6l-6 6 6 6",
  rise: "M6 18L18 6M9 6h9v9",
  fall: "M6 6l12 12M18 9v9H9",
  flat: "M5 12h14M14 7l5 5-5 5",
  play: "M7 5l12 7-12 7z",
  pause: "M8 5v14M16 5v14",
  stop: "M6.500 6.500h11v11h-11z",
  send: "M21 3L10 14M21 3l-7 18-4-7-7-4z",
  download: "M12 4v11M7.500 11l4.500 4.500 4.500-4.500M5 20h14",
  refresh: "M20 11a8 8 0 0 0-14.300-4L4 9M4 4v5h5M4 13a8 8 0 0 0 14.300 4l1.700-2M20 20v-5h-5",
  undo: "M4 9h10.500a5.500 5.500 0 0 1 0 11H9M8 5L4 9l4 4",
  key: "M8 17a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9zM12 11l9-5M17 8l2 3.500",
  user: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4.500 20.500c.8-4 3.700-6 7.500-6s6.700 2 7.500 6",
  logout: "M10 4H5v16h5M15 8l4 4-4 4M19 12H9",
  filter: "M4 5h16l-6.500 8v6l-3 1.500V13z",
  disk: "M4 6c0-1.700 3.600-3 8-3s8 1.300 8 3-3.600 3-8 3-8-1.300-8-3zM4 6v12c0 1.700 3.600 3 8 3s8-1.300 8-3V6M4 12c0 1.700 3.600 3 8 3s8-1.300 8-3",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5.500l3.500 2",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  empty: "M3 13l3-8h12l3 8v6H3zM3 13h5l1.500 3h5L16 13h5",
  keyboard: "M2.500 6h19v12h-19zM6 10h.01M10 10h.01M14 10h.01M18 10h.01M7 14h10",
};

/** @param {{ name: keyof typeof PATHS, label?: string }} props Without a label it is decoration. */
export function Icon({ name, label }) {
  return html`<svg class="icon" viewBox="0 0 24 24" role=${label ? "img" : undefined} aria-label=${label} aria-hidden=${label ? undefined : "true"}>
    <path d=${PATHS[name] ?? PATHS.info} />
  </svg>`;
}

export function Logo() {
  return html`<svg viewBox="0 0 32 32" aria-hidden="true">
    <rect width="32" height="32" rx="8" fill="var(--accent)" />
    <g fill="none" stroke="var(--on-accent)" stroke-width="2.6" stroke-linecap="round">
      <path d="M6 12c3.300 0 3.300 2.600 6.700 2.600S16 12 19.300 12s3.300 2.600 6.700 2.600" />
      <path d="M6 19c3.300 0 3.300 2.600 6.700 2.600S16 19 19.300 19s3.300 2.600 6.700 2.600" opacity=".65" />
    </g>
  </svg>`;
}
