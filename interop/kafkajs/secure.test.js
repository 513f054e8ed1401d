// KafkaJS over TLS, with each way to log in. `run.py` starts a broker with users and ACLs.
"use strict";

const assert = require("node:assert/strict");
const { randomBytes } = require("node:crypto");
const { readFileSync } = require("node:fs");
const { test } = require("node:test");
const { Kafka, logLevel } = require("kafkajs");

const { CERTIFICATES, SASL_TLS, TLS, TOKEN_URL, USER, PASSWORD, SECRET } = process.env;
const ca = [readFileSync(`${CERTIFICATES}/ca.crt`)];
const certificate = { cert: readFileSync(`${CERTIFICATES}/client.crt`), key: readFileSync(`${CERTIFICATES}/client.key`) };

async function token() {
  const authorization = `Basic ${Buffer.from(`${USER}:${SECRET}`).toString("base64")}`;
  const body = new URLSearchParams({ grant_type: "client_credentials" });
  const answer = await fetch(TOKEN_URL, { method: "POST", headers: { authorization }, body });
  return { value: (await answer.json()).access_token };
}

const password = (mechanism) => ({ mechanism, username: USER, password: PASSWORD });
const LOGINS = {
  PLAIN: { sasl: password("plain") },
  "SCRAM-SHA-256": { sasl: password("scram-sha-256") },
  "SCRAM-SHA-512": { sasl: password("scram-sha-512") },
  OAUTHBEARER: { sasl: { mechanism: "oauthbearer", oauthBearerProvider: token } },
  "a certificate": { ssl: { ca, ...certificate } },
};

function client(login) {
  const brokers = [login.sasl ? SASL_TLS : TLS];
  return new Kafka({ brokers, ssl: { ca }, logLevel: logLevel.NOTHING, retry: { retries: 0 }, ...login });
}

async function writeAndRead(kafka, topic) {
  const producer = kafka.producer();
  await producer.connect();
  try {
    await producer.send({ topic, messages: [{ value: "tea" }, { value: "milk" }] });
  } finally {
    await producer.disconnect();
  }
  const consumer = kafka.consumer({ groupId: topic });
  await consumer.connect();
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    return await new Promise((resolve, reject) => {
      const found = [];
      const timer = setTimeout(() => reject(new Error(`${found.length} of 2 messages came`)), 30000);
      consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error));
      consumer.run({
        eachMessage: async ({ message }) => {
          if (found.push(message.value.toString()) === 2) {
            clearTimeout(timer);
            resolve(found);
          }
        },
      });
    });
  } finally {
    await consumer.disconnect();
  }
}

for (const [name, login] of Object.entries(LOGINS)) {
  test(`writes and reads with ${name} over TLS`, async () => {
    const kafka = client(login);
    const topic = `secured-${randomBytes(4).toString("hex")}`;
    const admin = kafka.admin();
    await admin.connect();
    await admin.createTopics({ topics: [{ topic }], waitForLeaders: true });
    await admin.disconnect();
    assert.deepEqual((await writeAndRead(kafka, topic)).sort(), ["milk", "tea"]);
    await assert.rejects(writeAndRead(kafka, "forbidden"), /Topic authorization failed/);
  });
}

test("a wrong password is refused", async () => {
  const admin = client({ sasl: { ...password("scram-sha-512"), password: "wrong" } }).admin();
  await assert.rejects(admin.connect(), { name: "KafkaJSSASLAuthenticationError" });
});

test("a broker whose CA is not trusted is refused", async () => {
  const admin = client({ ...LOGINS.PLAIN, ssl: true }).admin();
  await assert.rejects(admin.connect());
});
