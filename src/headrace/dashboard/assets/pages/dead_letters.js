/** Dead letters of a queue with their reasons, and redriving them with progress. */
import { html, useEffect, useRef, useState } from "../core/html.js";
import { del, get, part, post } from "../core/api.js";
import { count, plural } from "../core/format.js";
import { useResource } from "../core/resource.js";
import { useRights } from "../core/rights.js";
import { to } from "../core/router.js";
import { Badge } from "../components/badge.js";
import { Dialog, useAction } from "../components/dialog.js";
import { TextField } from "../components/form.js";
import { Icon } from "../components/icons.js";
import { Progress } from "../components/stat.js";
import { Empty, ErrorNotice, Failed } from "../components/states.js";
import { toast } from "../components/toast.js";
import { QueueTable } from "./queue_messages.js";

const ASK_MS = 500;

export function DeadLetters({ name, queue }) {
  const isDeadQueue = (queue.dead_letters_of ?? []).length > 0;
  const holder = isDeadQueue ? name : queue.dead_letter_queue;
  const { canChange } = useRights();
  const [isAsking, setAsking] = useState(false);
  const letters = useResource(`/queues/${part(holder)}/messages`, { query: { limit: 50 } });
  const redrive = useRedrive(holder, letters.reload);
  const rows = letters.data?.items ?? [];
  const total = isDeadQueue ? queue.visible : queue.dead_letters;
  if (letters.error && !letters.data) return html`<div class="card"><${Failed} error=${letters.error} retry=${letters.reload} /></div>`;
  return html`<section class="card" aria-label="Dead letters">
    <div class="card-head">
      <div><h2>Dead letters</h2><p>Received too often or rejected; they wait in <a href=${to("queues", holder)}>${holder}</a></p></div>
      ${canChange && html`<button type="button" class="button primary" disabled=${!rows.length || redrive.isRunning} onClick=${() => setAsking(true)}><${Icon} name="undo" />Redrive</button>`}
    </div>
    <${RedriveProgress} redrive=${redrive} />
    <${QueueTable} rows=${rows} isLoading=${letters.isLoading && !letters.data}
      extra=${[{ key: "reason", label: "Reason", wide: true, cell: (row) => html`<span class="small second reason-text">${row.origin?.reason ?? "unknown"}${row.origin?.queue ? `, in ${row.origin.queue}` : ""}</span>` }]}
      empty=${html`<${Empty} icon="check" title="No dead letters">Messages that are received too often, or rejected, appear here with the reason.<//>`} />
    ${isAsking && html`<${RedriveDialog} holder=${holder} total=${total} sources=${isDeadQueue ? queue.dead_letters_of : [name]} onClose=${() => setAsking(false)} onStart=${redrive.begin} />`}
  </section>`;
}

function RedriveDialog({ holder, total, sources, onClose, onStart }) {
  const [target, setTarget] = useState("");
  const [rate, setRate] = useState("");
  const { isBusy, error, start } = useAction(
    () => post(`/queues/${part(holder)}/redrive`, { to: target || undefined, rate: Number(rate) || undefined }),
    (task) => {
      onClose();
      onStart(task);
    },
  );
  return html`<${Dialog} title=${`Redrive ${plural(total, "dead letter")}?`} onClose=${onClose} onSubmit=${start}
    foot=${html`<button type="button" class="button" onClick=${onClose}>Cancel</button><button class="button primary" disabled=${isBusy}>${isBusy ? "Starting…" : "Redrive"}</button>`}>
    <ul class="consequences">
      <li>${plural(total, "message")} move from ${holder} back to ${target || `the queue that each came from (${sources.join(", ")})`}.</li>
      <li>They are received and counted as if they were new.</li>
      <li>You can stop it; what has moved stays moved.</li>
    </ul>
    <div class="form-grid">
      <${TextField} label="To another queue" value=${target} onValue=${setTarget} mono placeholder=${sources[0]} hint="Empty: where each came from" />
      <${TextField} label="Messages per second" type="number" min="1" value=${rate} onValue=${setRate} placeholder="as fast as it goes" />
    </div>
    <${ErrorNotice} error=${error} />
  <//>`;
}

const isEnded = (status) => status !== "running" && status !== "cancelling";

/** The redrive that runs, or has just ended. */
function useRedrive(holder, onMoved) {
  const [task, setTask] = useState(null);
  const wasRunning = useRef(false);
  useEffect(() => {
    let isGone = false;
    let timer = 0;
    async function look() {
      try {
        const answer = await get(`/queues/${part(holder)}/redrive`);
        const newest = answer[0];
        if (isGone) return;
        if (newest) {
          const runs = !isEnded(newest.status);
          if (runs || wasRunning.current) setTask(newest);
          if (wasRunning.current && !runs) {
            wasRunning.current = false;
            onMoved();
            toast(`Redrive of ${holder}: ${plural(newest.moved, "message")} moved.`);
          }
          wasRunning.current = runs;
        }
      } catch {
        // Without a task there is nothing to show.
      }
      if (!isGone) timer = setTimeout(look, wasRunning.current ? ASK_MS : ASK_MS * 6);
    }
    look();
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, [holder, task?.begun]);
  return {
    task,
    isRunning: task !== null && !isEnded(task.status),
    begin: (made) => {
      wasRunning.current = true;
      setTask({ ...made, begun: Date.now() });
    },
    stop: () => del(`/queues/${part(holder)}/redrive`),
  };
}

function RedriveProgress({ redrive }) {
  const { task, isRunning } = redrive;
  const { isBusy, error, start } = useAction(redrive.stop);
  if (!task) return null;
  const total = Math.max(task.to_move, task.moved);
  const share = total ? task.moved / total : isRunning ? null : 1;
  return html`<div class="redrive" role="status">
    <div class="row spread"><span class="small">${isRunning ? "Redriving" : "Redrive ended"}: <b class="num">${count(task.moved)}</b> of <b class="num">${count(total)}</b> moved
        ${task.failure && html`<${Badge} tone="crit">${task.failure}<//>`}</span>
      ${isRunning && html`<button type="button" class="button small" disabled=${isBusy} onClick=${start}><${Icon} name="stop" />Stop</button>`}</div>
    <${Progress} share=${share} label="Redrive" />
    <${ErrorNotice} error=${error} />
  </div>`;
}
