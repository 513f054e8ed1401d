/** The frame around every page: sidebar, top bar with the path and the live state, the jump box and the help. */
import { html, useEffect, useState } from "../core/html.js";
import { del, session } from "../core/api.js";
import { connection } from "../core/live.js";
import { listenToKeys } from "../core/keys.js";
import { BASE, navigate, to, usePlace } from "../core/router.js";
import { useStore } from "../core/store.js";
import { nextTheme, theme } from "../core/theme.js";
import { Icon, Logo } from "./icons.js";
import { JumpBox } from "./jump.js";
import { KeyHelp } from "./key_help.js";
import { toast, Toasts } from "./toast.js";

const NAV = [
  [null, [["", "Overview", "overview"]]],
  ["Data", [["topics", "Topics", "topics"], ["groups", "Groups", "groups"], ["queues", "Queues", "queues"], ["transactions", "Transactions", "transactions"], ["schemas", "Schemas", "schemas"], ["pipelines", "Pipelines", "pipelines"]]],
  ["Operate", [["cluster", "Cluster", "cluster"], ["links", "Links", "links"], ["clients", "Clients", "clients"], ["security", "Security", "security"]]],
];

export function Shell({ children }) {
  const { path } = usePlace();
  const [isOpen, setOpen] = useState(false);
  const [box, setBox] = useState(null);
  useEffect(() => setOpen(false), [path]);
  useEffect(() => listenToKeys({ help: () => setBox("help"), jump: () => setBox("jump"), theme: nextTheme }), []);
  useEffect(() => {
    if (!isOpen) return undefined;
    const close = (event) => event.key === "Escape" && setOpen(false);
    addEventListener("keydown", close);
    return () => removeEventListener("keydown", close);
  }, [isOpen]);
  return html`<div class="shell">
    <a class="skip" href="#page" onClick=${skip}>Skip to the content</a>
    <${Sidebar} path=${path} isOpen=${isOpen} />
    ${isOpen && html`<button type="button" class="drawer-scrim" aria-label="Close the menu" onClick=${() => setOpen(false)}></button>`}
    <div class="main">
      <header class="topbar">
        <button type="button" class="button quiet icon-only menu-button" aria-label="Menu" aria-expanded=${isOpen ? "true" : "false"} onClick=${() => setOpen(true)}><${Icon} name="menu" /></button>
        <${Crumbs} path=${path} />
        <div class="topbar-end">
          <${LiveState} />
          <button type="button" class="button quiet small desktop-only" onClick=${() => setBox("jump")}><${Icon} name="search" />Jump to <kbd>Ctrl K</kbd></button>
          <button type="button" class="button quiet icon-only desktop-only" aria-label="Keyboard shortcuts" title="Keyboard shortcuts (?)" onClick=${() => setBox("help")}><${Icon} name="keyboard" /></button>
          <${ThemeButton} />
        </div>
      </header>
      <main class="page" id="page" tabindex="-1">${children}</main>
    </div>
    ${box === "jump" && html`<${JumpBox} onClose=${() => setBox(null)} />`}
    ${box === "help" && html`<${KeyHelp} onClose=${() => setBox(null)} />`}
    <${Toasts} />
  </div>`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("page").focus();
}

function Sidebar({ path, isOpen }) {
  const place = path.slice(BASE.length).split("/")[1] ?? "";
  const who = useStore(session);
  return html`<aside class=${`sidebar ${isOpen ? "open" : ""}`}><div class="sidebar-inner">
    <a class="brand" href=${BASE}><${Logo} />Headrace</a>
    <nav class="nav" aria-label="Main">
      ${NAV.map(
        ([title, links]) => html`${title && html`<span class="nav-title">${title}</span>`}
          ${links.map(([key, label, icon]) => html`<a class="nav-link" href=${to(key)} aria-current=${key === place ? "page" : undefined}><${Icon} name=${icon} />${label}</a>`)}`,
      )}
    </nav>
    <${Foot} who=${who} />
  </div></aside>`;
}

function Foot({ who }) {
  if (!who) return html`<div class="sidebar-foot"><span class="skeleton w60"></span></div>`;
  return html`<div class="sidebar-foot">
    ${who.user &&
    html`<div class="row"><span class="row"><${Icon} name="user" />${who.user}</span>
      <button type="button" class="button quiet small icon-only" aria-label="Log out" title="Log out" onClick=${logOut}><${Icon} name="logout" /></button></div>`}
    ${who.read_only && html`<div><span class="badge info">read-only</span></div>`}
    <div>
      <div class="truncate" title=${who.cluster_id}>Cluster <span class="mono">${who.cluster_id}</span></div>
      <div>Broker ${who.broker_id} · version ${who.version}</div>
    </div>
  </div>`;
}

async function logOut() {
  try {
    await del("/session");
  } catch (error) {
    toast(error.message, "crit");
    return;
  }
  session.set((now) => ({ ...now, user: null, needsLogin: true }));
  navigate(to("login"));
}

function Crumbs({ path }) {
  const parts = path.slice(BASE.length).split("/").filter(Boolean).map(decodeURIComponent);
  const titles = Object.fromEntries(NAV.flatMap(([, links]) => links.map(([key, label]) => [key, label])));
  const trail = parts.length ? parts : [""];
  return html`<nav aria-label="Path" class="crumbs-nav truncate">
    <ol class="crumbs">
      ${trail.slice(0, 2).map((each, i) => {
        const isLast = i === Math.min(trail.length, 2) - 1;
        const text = i === 0 ? (titles[each] ?? each) : each;
        return html`<li key=${i} class="truncate">
          ${i > 0 && html`<span aria-hidden="true">/</span>`}
          ${isLast ? html`<span class="truncate" aria-current="page">${text}</span>` : html`<a href=${to(each)}>${text}</a>`}
        </li>`;
      })}
    </ol>
  </nav>`;
}

const LIVE = { live: "Live", reconnecting: "Reconnecting", paused: "Paused" };

function LiveState() {
  const state = useStore(connection);
  return html`<span role="status">${state && html`<span class=${`live ${state}`}><span class="dot"></span>${LIVE[state]}</span>`}</span>`;
}

function ThemeButton() {
  const { choice } = useStore(theme);
  const icon = { system: "system", light: "sun", dark: "moon" }[choice];
  const label = { system: "the system's", light: "light", dark: "dark" }[choice];
  return html`<button type="button" class="button quiet icon-only" aria-label=${`Theme: ${label}. Change`} title=${`Theme: ${label}`} onClick=${nextTheme}><${Icon} name=${icon} /></button>`;
}
