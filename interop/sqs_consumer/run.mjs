// sqs-consumer against the queue in QUEUE_URL. `run.py` starts a broker and makes the queue.
import { Consumer } from "sqs-consumer";
import { SendMessageBatchCommand, SendMessageCommand, SQSClient } from "@aws-sdk/client-sqs";

const { ENDPOINT, QUEUE_URL, GOOD, DONE_WITHIN_MS } = process.env;
const good = Number(GOOD);
const sqs = new SQSClient({
  endpoint: ENDPOINT,
  region: "us-east-1",
  credentials: { accessKeyId: "any", secretAccessKey: "any" },
});

await sqs.send(new SendMessageCommand({ QueueUrl: QUEUE_URL, MessageBody: "poison" }));
for (let first = 0; first < good; first += 10) {
  const numbers = [...Array(Math.min(10, good - first)).keys()].map((index) => first + index);
  const Entries = numbers.map((number) => ({ Id: `${number}`, MessageBody: `good ${number}` }));
  await sqs.send(new SendMessageBatchCommand({ QueueUrl: QUEUE_URL, Entries }));
}

const handled = new Set();
let poisoned = 0;
const consumer = Consumer.create({
  queueUrl: QUEUE_URL,
  sqs,
  waitTimeSeconds: 5,
  terminateVisibilityTimeout: true,
  handleMessage: async (message) => {
    if (message.Body === "poison") {
      poisoned += 1;
      throw new Error("poison");
    }
    handled.add(message.Body);
    if (handled.size === good) finish();
    return message;
  },
});

function finish() {
  clearTimeout(deadline);
  consumer.stop({ abort: false });
}

const errors = [];
consumer.on("error", (error) => errors.push(error.message));
consumer.on("processing_error", () => {});
const deadline = setTimeout(finish, Number(DONE_WITHIN_MS));
consumer.on("stopped", () => {
  console.log(JSON.stringify({ handled: handled.size, poisoned, errors: errors.slice(0, 5) }));
});
consumer.start();
