/** What stands in for data: skeletons while it loads, empty states with the next step, and errors. */
import { html } from "../core/html.js";
import { to } from "../core/router.js";
import { Command } from "./code.js";
import { Icon } from "./icons.js";

export function SkeletonRows({ rows = 6, columns = 5 }) {
  return Array.from({ length: rows }, (_, i) => html`<tr key=${`s${i}`} aria-hidden="true">
    ${Array.from({ length: columns }, (__, j) => html`<td><span class=${`skeleton ${j ? "w40" : "w60"}`}></span></td>`)}
  </tr>`);
}

export function SkeletonPage() {
  return html`<div class="stack" aria-busy="true" aria-label="Loading" role="status">
    <span class="skeleton w40"></span>
    <div class="grid-2"><span class="skeleton block"></span><span class="skeleton block"></span></div>
    <span class="skeleton block"></span>
  </div>`;
}

/** The command by which a consumer joins a group. */
export const joinCommand = (group, topic) => `kcat -b localhost:9092 -G ${group} ${topic}`;

/** @param {{ icon?: string, title: string, children?: any, command?: string, action?: any }} props */
export function Empty({ icon = "empty", title, children, command, action }) {
  return html`<div class="empty">
    <${Icon} name=${icon} />
    <h2>${title}</h2>
    ${children && html`<p>${children}</p>`}
    ${action}
    ${command && html`<${Command} text=${command} />`}
  </div>`;
}

export function ErrorNotice({ error }) {
  if (!error) return null;
  return html`<div class="notice crit" role="alert"><${Icon} name="critical" /><p>${error.message}</p></div>`;
}

const ADVICE = {
  0: ["The broker does not answer", "headrace health"],
  403: ["You may not see this", "headrace acl explain --help"],
  404: ["There is nothing here", null],
};

/** A page, or a part of one, that could not be loaded. */
export function Failed({ error, retry }) {
  const [title, command] = ADVICE[error.status] ?? ["This could not be loaded", null];
  return html`<${Empty} icon="critical" title=${title} command=${command}
    action=${html`<div class="row">
      ${retry && html`<button type="button" class="button" onClick=${retry}><${Icon} name="refresh" />Try again</button>`}
      <a class="button quiet" href=${to()}>Go to the overview</a>
    </div>`}
  >${error.message}<//>`;
}

/** Loading, failed, or the children with the data. */
export function Loaded({ resource, children, skeleton }) {
  if (resource.data) return children(resource.data);
  if (resource.error) return html`<div class="card"><${Failed} error=${resource.error} retry=${resource.reload} /></div>`;
  return skeleton ?? html`<${SkeletonPage} />`;
}
