/** Sending one message to a queue. */
import { html, useState } from "../core/html.js";
import { part, post } from "../core/api.js";
import { Dialog, useAction } from "../components/dialog.js";
import { TextArea, TextField } from "../components/form.js";
import { ErrorNotice } from "../components/states.js";
import { toast } from "../components/toast.js";

export function SendDialog({ queue, fifo, onClose, onDone }) {
  const [body, setBody] = useState("");
  const [delay, setDelay] = useState("");
  const [group, setGroup] = useState("");
  const { isBusy, error, start } = useAction(
    () => post(`/queues/${part(queue)}/messages`, { body, delay_ms: Number(delay) * 1000 || undefined, group: group || undefined }),
    () => {
      onClose();
      onDone();
      toast(`Sent a message to ${queue}.`);
    },
  );
  return html`<${Dialog} title=${`Send to ${queue}`} onClose=${onClose} onSubmit=${() => body && start()}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" disabled=${isBusy || !body || (fifo && !group)}>${isBusy ? "Sending…" : "Send"}</button>`}>
    <${TextArea} label="Body" value=${body} onValue=${setBody} placeholder='{"job": "resize", "image": 17}' autofocus />
    <div class="form-grid">
      <${TextField} label="Delay in seconds" type="number" min="0" value=${delay} onValue=${setDelay} placeholder="0" disabled=${fifo} hint=${fifo ? "A FIFO queue has one delay for all" : undefined} />
      ${fifo && html`<${TextField} label="Message group" value=${group} onValue=${setGroup} mono placeholder="customer-17" hint="Messages of a group are received in order" />`}
    </div>
    <${ErrorNotice} error=${error} />
  <//>`;
}
