/** One pipeline: the graph, figures over time, dead letters with replay, the log; starting and stopping. */
import { html, useState } from "../core/html.js";
import { part, post } from "../core/api.js";
import { ago, bytes, count, ms, perSecond, plural, short, time } from "../core/format.js";
import { useResource } from "../core/resource.js";
import { useRights } from "../core/rights.js";
import { to } from "../core/router.js";
import { StateBadge } from "../components/badge.js";
import { Chart } from "../components/chart.js";
import { Confirm } from "../components/dialog.js";
import { Icon } from "../components/icons.js";
import { PageHead } from "../components/page.js";
import { Card, Stats } from "../components/stat.js";
import { Empty, Loaded } from "../components/states.js";
import { Tabs } from "../components/tabs.js";
import { toast } from "../components/toast.js";
import { PipelineDeadLetters } from "./pipeline_dead_letters.js";
import { PipelineGraph } from "./pipeline_graph.js";

export function PipelinePage({ name, tab = "figures" }) {
  const pipeline = useResource(`/pipelines/${part(name)}`, { live: `pipelines/${part(name)}` });
  return html`<${Loaded} resource=${pipeline}>${(data) => html`<${Pipeline} name=${name} tab=${tab} pipeline=${data} reload=${pipeline.reload} />`}<//>`;
}

function Pipeline({ name, tab, pipeline, reload }) {
  const [dialog, setDialog] = useState(null);
  const { canChange } = useRights();
  const log = pipeline.log ?? pipeline.log_tail ?? [];
  async function begin() {
    try {
      await post(`/pipelines/${part(name)}/start`);
      toast(`Starting ${name}.`);
      reload();
    } catch (error) {
      toast(error.message, "crit");
    }
  }
  return html`<${PageHead} title=${name} badges=${html`<${StateBadge} state=${pipeline.state} />`}
      note=${[pipeline.host && `On ${pipeline.host}`, pipeline.started_ms && `started ${ago(pipeline.started_ms)}`, `reported ${ago(pipeline.reported_ms)}`].filter(Boolean).join(", ")}>
      ${canChange && pipeline.can_stop && html`<button type="button" class="button danger" onClick=${() => setDialog("stop")}><${Icon} name="stop" />Stop</button>`}
      ${canChange && pipeline.can_start && html`<button type="button" class="button primary" onClick=${begin}><${Icon} name="play" />Start</button>`}
    <//>
    ${pipeline.last_error && html`<div class="notice crit" role="alert"><${Icon} name="critical" /><p>${pipeline.last_error}</p></div>`}
    <${Card} title="Graph"><${PipelineGraph} graph=${pipeline.graph ?? {}} /><//>
    <${Stats} label="Now" items=${[
      { label: "Rows", value: short(pipeline.rows_per_s), unit: "/s", note: `${short(pipeline.rows_in)} in, ${short(pipeline.rows_out)} out` },
      { label: "Lag", value: short(pipeline.lag), unit: "messages" },
      { label: "Batch time", value: ms(pipeline.batch_ms), note: plural(pipeline.batches ?? 0, "batch", "batches") },
      { label: "Dead letters", value: short(pipeline.dead_letters), tone: pipeline.dead_letters ? "crit" : "" },
      { label: "State", value: bytes(pipeline.state_bytes), note: plural(pipeline.state_rows ?? 0, "row") },
      { label: "Restarts", value: count(pipeline.restarts), tone: pipeline.restarts ? "warn" : "" },
    ]} />
    <${Tabs} label="Parts of the pipeline" current=${tab} tabs=${[
      { key: "figures", label: "Over time", href: to("pipelines", name) },
      { key: "dead-letters", label: "Dead letters", href: to("pipelines", name, "dead-letters"), count: count(pipeline.dead_letters) },
      { key: "log", label: "Log", href: to("pipelines", name, "log") },
    ]} />
    ${tab === "figures" &&
    html`<div class="grid-3">
      <${Chart} title="Rows" history=${pipeline.history} format=${perSecond} series=${[{ name: "rows_per_s", label: "rows" }]} />
      <${Chart} title="Lag" history=${pipeline.history} format=${short} series=${[{ name: "lag", label: "messages" }]} />
      <${Chart} title="Batch time" history=${pipeline.history} format=${ms} series=${[{ name: "batch_ms", label: "batch" }]} />
    </div>`}
    ${tab === "dead-letters" && html`<${PipelineDeadLetters} name=${name} pipeline=${pipeline} reload=${reload} />`}
    ${tab === "log" && html`<${Log} lines=${log} />`}
    ${dialog === "stop" &&
    html`<${Confirm} title=${`Stop ${name}?`} action="Stop the pipeline" danger onClose=${() => setDialog(null)}
      consequences=${["The batch in progress is finished, then the process waits.", "It goes on from its checkpoint when it is started again: no row is lost or written twice.", "Messages wait in its source topics meanwhile."]}
      run=${async () => {
        await post(`/pipelines/${part(name)}/stop`);
        toast(`Stopping ${name}.`);
        reload();
      }} />`}`;
}

function Log({ lines }) {
  const rows = Array.isArray(lines) ? lines : String(lines).split("\n");
  return html`<${Card} title="Log" note=${`The last lines, as of ${time(Date.now())}`}>
    ${rows.length
      ? html`<pre class="log" tabindex="0" role="region" aria-label="Log">${rows.join("\n")}</pre>`
      : html`<${Empty} icon="topics" title="No lines yet" command="headrace pipeline status">A pipeline sends the end of its log with each report.<//>`}
  <//>`;
}
