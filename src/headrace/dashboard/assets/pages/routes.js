/** Which page each path shows. */
import { ClientPage, ClientsPage, PushingPage, QuotasPage } from "./clients.js";
import { ClusterPage } from "./cluster.js";
import { GroupPage } from "./group.js";
import { GroupsPage } from "./groups.js";
import { LinkPage } from "./link.js";
import { LinksPage } from "./links.js";
import { OverviewPage } from "./overview.js";
import { PipelinePage } from "./pipeline.js";
import { PipelinesPage } from "./pipelines.js";
import { QueuePage } from "./queue.js";
import { QueuesPage } from "./queues.js";
import { SchemaPage } from "./schema.js";
import { SchemasPage } from "./schemas.js";
import { SecurityPage } from "./security.js";
import { TopicPage } from "./topic.js";
import { TopicsPage } from "./topics.js";
import { TransactionsPage } from "./transactions.js";

export const ROUTES = [
  ["", OverviewPage],
  ["topics", TopicsPage],
  ["topics/:name/:tab?", TopicPage],
  ["groups", GroupsPage],
  ["groups/:name/:tab?", GroupPage],
  ["queues", QueuesPage],
  ["queues/:name/:tab?", QueuePage],
  ["transactions", TransactionsPage],
  ["schemas", SchemasPage],
  ["schemas/:name/:tab?", SchemaPage],
  ["pipelines", PipelinesPage],
  ["pipelines/:name/:tab?", PipelinePage],
  ["links", LinksPage],
  ["links/:name", LinkPage],
  ["cluster/:tab?", ClusterPage],
  ["clients", ClientsPage],
  ["clients/metrics", PushingPage],
  ["clients/quotas", QuotasPage],
  ["clients/:name", ClientPage],
  ["security/:tab?", SecurityPage],
];
