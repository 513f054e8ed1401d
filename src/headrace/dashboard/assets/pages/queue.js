/** One queue: counts over time, messages that wait, dead letters, settings. */
import { html, useState } from "../core/html.js";
import { del, part, post } from "../core/api.js";
import { count, duration, perSecond, pluralAre, short } from "../core/format.js";
import { useResource } from "../core/resource.js";
import { useRights } from "../core/rights.js";
import { navigate, to } from "../core/router.js";
import { Badge } from "../components/badge.js";
import { Chart } from "../components/chart.js";
import { Confirm } from "../components/dialog.js";
import { Icon } from "../components/icons.js";
import { PageHead } from "../components/page.js";
import { Stats } from "../components/stat.js";
import { Loaded } from "../components/states.js";
import { Tabs } from "../components/tabs.js";
import { toast } from "../components/toast.js";
import { DeadLetters } from "./dead_letters.js";
import { QueueMessages } from "./queue_messages.js";
import { QueueSettings } from "./queue_settings.js";
import { SendDialog } from "./send.js";

export function QueuePage({ name, tab = "messages" }) {
  const queue = useResource(`/queues/${part(name)}`, { live: `queues/${part(name)}` });
  return html`<${Loaded} resource=${queue}>${(data) => html`<${Queue} name=${name} tab=${tab} queue=${data} reload=${queue.reload} />`}<//>`;
}

function Queue({ name, tab, queue, reload }) {
  const [dialog, setDialog] = useState(null);
  const { canChange } = useRights();
  const [version, setVersion] = useState(0);
  const close = () => setDialog(null);
  function changed() {
    reload();
    setVersion((now) => now + 1);
  }
  const waiting = (queue.visible ?? 0) + (queue.delayed ?? 0) + (queue.in_flight ?? 0);
  const sources = queue.dead_letters_of ?? [];
  const tabs = [
    { key: "messages", label: "Messages", href: to("queues", name), count: count(waiting) },
    ...(queue.dead_letter_queue || sources.length ? [{ key: "dead-letters", label: "Dead letters", href: to("queues", name, "dead-letters"), count: count(sources.length ? queue.visible : queue.dead_letters) }] : []),
    { key: "settings", label: "Settings", href: to("queues", name, "settings") },
  ];
  return html`<${PageHead} title=${name}
      badges=${html`${queue.fifo && html`<${Badge}>FIFO<//>`}${sources.length > 0 && html`<${Badge} tone="warn">dead letters of ${sources.join(", ")}<//>`}`}
      note=${queue.dead_letter_queue && html`Dead letters go to <a href=${to("queues", queue.dead_letter_queue)}>${queue.dead_letter_queue}</a>`}>
      <a class="button" href=${to("topics", name)}>Open as a topic</a>
      ${canChange && html`<button type="button" class="button danger" onClick=${() => setDialog("purge")}>Purge</button>
        <button type="button" class="button danger" onClick=${() => setDialog("delete")}><${Icon} name="trash" />Delete</button>
        <button type="button" class="button primary" onClick=${() => setDialog("send")}><${Icon} name="send" />Send</button>`}
    <//>
    <${Stats} label="Now" items=${[
      { label: "Visible", value: short(queue.visible), note: "can be received now" },
      { label: "In flight", value: short(queue.in_flight), note: "received, not acknowledged" },
      { label: "Delayed", value: short(queue.delayed), note: "not before a given time" },
      { label: "Oldest", value: duration(queue.oldest_age_s) },
      { label: "Dead letters", value: queue.dead_letter_queue ? short(queue.dead_letters) : "–", tone: queue.dead_letters ? "crit" : "" },
      { label: "Sent", value: short(queue.sent_per_s), unit: "/s", note: `${perSecond(queue.deleted_per_s)} deleted` },
    ]} />
    ${queue.history &&
    html`<div class="grid-2">
      <${Chart} title="Messages" history=${queue.history} format=${short} series=${[{ name: "visible", label: "visible" }, { name: "in_flight", label: "in flight" }, { name: "delayed", label: "delayed" }]} />
      <${Chart} title="Flow" history=${queue.history} format=${perSecond} series=${[{ name: "sent_per_s", label: "sent" }, { name: "received_per_s", label: "received" }, { name: "deleted_per_s", label: "deleted" }]} />
    </div>`}
    <${Tabs} label="Parts of the queue" current=${tab} tabs=${tabs} />
    ${tab === "messages" && html`<${QueueMessages} name=${name} queue=${queue} version=${version} />`}
    ${tab === "dead-letters" && html`<${DeadLetters} name=${name} queue=${queue} />`}
    ${tab === "settings" && html`<${QueueSettings} name=${name} queue=${queue} reload=${reload} />`}
    ${dialog === "send" && html`<${SendDialog} queue=${name} fifo=${queue.fifo} onClose=${close} onDone=${changed} />`}
    ${dialog === "purge" &&
    html`<${Confirm} title=${`Purge ${name}?`} action="Purge the queue" danger typed=${name} onClose=${close}
      consequences=${[`${pluralAre(waiting, "message")} deleted: visible, delayed and in flight.`, "Messages that are sent from now on stay.", "This cannot be undone."]}
      run=${async () => {
        await post(`/queues/${part(name)}/purge`);
        toast(`Purged ${name}.`);
        changed();
      }} />`}
    ${dialog === "delete" &&
    html`<${Confirm} title=${`Delete the queue ${name}?`} action="Delete the queue" danger typed=${name} onClose=${close}
      consequences=${[`${pluralAre(waiting, "message")} deleted with it.`, sources.length ? `${sources.join(", ")} lose their dead-letter queue.` : "Receivers get an error from now on.", "This cannot be undone."]}
      run=${async () => {
        await del(`/queues/${part(name)}`);
        toast(`Deleted the queue ${name}.`);
        navigate(to("queues"));
      }} />`}`;
}
