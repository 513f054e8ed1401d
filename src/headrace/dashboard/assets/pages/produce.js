/** Producing one message, or sending one to a queue. */
import { html, useState } from "../core/html.js";
import { part, post } from "../core/api.js";
import { Dialog, useAction } from "../components/dialog.js";
import { SelectField, TextArea, TextField } from "../components/form.js";
import { ErrorNotice } from "../components/states.js";
import { toast } from "../components/toast.js";
import { prettyJson } from "../components/code.js";

/** "name: value" per line, as pairs. */
export const headerLines = (text) =>
  text
    .split("\n")
    .filter((line) => line.trim())
    .map((line) => {
      const at = line.indexOf(":");
      return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
    });

export function ProduceDialog({ topic, partitions, onClose }) {
  const [key, setKey] = useState("");
  const [value, setValue] = useState("");
  const [headers, setHeaders] = useState("");
  const [partition, setPartition] = useState("");
  const isJson = prettyJson(value) !== null;
  const { isBusy, error, start } = useAction(
    () => post(`/topics/${part(topic)}/messages`, { key: key === "" ? null : key, value, headers: headerLines(headers), partition: partition === "" ? null : Number(partition) }),
    (made) => {
      onClose();
      toast(`Produced to partition ${made.partition}, offset ${made.offset}.`);
    },
  );
  const choices = [["", "by the key"], ...Array.from({ length: Math.min(partitions, 1000) }, (_, i) => [String(i), `Partition ${i}`])];
  return html`<${Dialog} title=${`Produce to ${topic}`} onClose=${onClose} onSubmit=${start}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" disabled=${isBusy}>${isBusy ? "Producing…" : "Produce"}</button>`}>
    <div class="form-grid">
      <${TextField} label="Key" value=${key} onValue=${setKey} mono hint="Empty: no key" autofocus />
      <${SelectField} label="Partition" value=${partition} onValue=${setPartition} options=${choices} />
      <${TextArea} label="Value" value=${value} onValue=${setValue} hint=${value ? (isJson ? "Valid JSON" : "Sent as text") : "Text or JSON"} placeholder='{"id": 1, "status": "paid"}' />
      <${TextArea} label="Headers" value=${headers} onValue=${setHeaders} rows=${3} placeholder="content-type: application/json" hint="One name: value per line" />
    </div>
    <${ErrorNotice} error=${error} />
  <//>`;
}
