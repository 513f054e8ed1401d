/** Settings of a queue. */
import { html } from "../core/html.js";
import { part } from "../core/api.js";
import { SettingRows } from "./settings_table.js";

export function QueueSettings({ name, queue, reload }) {
  return html`<${SettingRows} rows=${queue.settings ?? []} path=${`/queues/${part(name)}/settings`} subject=${`queue ${name}`} reload=${reload} />`;
}
