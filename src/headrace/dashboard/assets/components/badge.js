/** States as words in a colour that means the same everywhere. */
import { html } from "../core/html.js";
import { Icon } from "./icons.js";

const TONES = {
  ok: ["ok", "stable", "active", "running", "online", "up", "complete", "completed", "finished", "allowed", "success", "completecommit", "leader", "visible", "available", "committed", "mirroring"],
  warn: ["warning", "starting", "stopping", "draining", "preparingrebalance", "completingrebalance", "assigning", "reconciling", "restarting", "prepareabort", "preparecommit", "waiting", "behind", "paused", "lagging", "delayed", "notreporting", "promoting"],
  crit: ["critical", "failed", "offline", "down", "dead", "denied", "error", "crashed", "no data", "faulted", "unreachable"],
  info: ["in flight", "ongoing", "running task", "moving", "replaying"],
};

export function toneOf(state) {
  const word = String(state ?? "").toLowerCase().replace(/[_\s-]/g, "");
  for (const [tone, words] of Object.entries(TONES)) if (words.some((each) => each.replace(/\s/g, "") === word)) return tone;
  return "";
}

/** @param {{ tone?: string, dot?: boolean, title?: string, children: any }} props */
export function Badge({ tone = "", dot = false, title, children }) {
  return html`<span class=${`badge ${tone}`} title=${title}>${dot && html`<span class="dot"></span>`}${children}</span>`;
}

export function StateBadge({ state }) {
  return html`<${Badge} tone=${toneOf(state)} dot>${words(state)}<//>`;
}

/** PreparingRebalance and PREPARING_REBALANCE as "preparing rebalance". */
export function words(state) {
  return String(state ?? "unknown")
    .replace(/([a-z])([A-Z])/g, "$1 $2")
    .replace(/[_-]/g, " ")
    .toLowerCase();
}

const TRENDS = {
  up: ["rise", "rising"],
  rising: ["rise", "rising"],
  growing: ["rise", "rising"],
  down: ["fall", "falling"],
  falling: ["fall", "falling"],
  shrinking: ["fall", "falling"],
};

/** An arrow for where a number is going. For lag and ages, up is bad. */
export function Trend({ trend, withWord = false }) {
  const word = typeof trend === "number" ? (trend > 0 ? "up" : trend < 0 ? "down" : "flat") : trend;
  const [icon, label] = TRENDS[word] ?? ["flat", "steady"];
  const tone = icon === "rise" ? "up" : icon === "fall" ? "down" : "flat";
  return html`<span class=${`trend ${tone}`} title=${label}><${Icon} name=${icon} label=${withWord ? undefined : label} />${withWord && label}</span>`;
}
