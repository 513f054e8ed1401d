// KafkaJS against a broker whose address is in BOOTSTRAP. `run.py` starts one and has written topics from Python.
"use strict";

const assert = require("node:assert/strict");
const { randomBytes } = require("node:crypto");
const { after, before, test } = require("node:test");
const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require("kafkajs");
const lz4 = require("lz4js");
const SnappyCodec = require("kafkajs-snappy");
const { ZstdCodec } = require("zstd-codec");

const CODECS = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 };
const kafka = new Kafka({ brokers: [process.env.BOOTSTRAP], clientId: "kafkajs-interop", logLevel: logLevel.NOTHING });
const admin = kafka.admin();

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec;
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(lz4.decompress(buffer)),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: (encoder) => withZstd((zstd) => new zstd.Simple().compress(encoder.buffer)),
  // librdkafka's frames do not say how large they get, so that only the streaming reader can read them.
  decompress: (buffer) => withZstd((zstd) => new zstd.Streaming().decompress(buffer)),
});

function withZstd(work) {
  return new Promise((resolve) => ZstdCodec.run((zstd) => resolve(Buffer.from(work(zstd)))));
}

function fresh(name) {
  return `kafkajs-${name}-${randomBytes(4).toString("hex")}`;
}

async function newTopic(name, numPartitions = 1, configEntries = []) {
  const topic = fresh(name);
  await admin.createTopics({ topics: [{ topic, numPartitions, configEntries }], waitForLeaders: true });
  return topic;
}

async function send(topic, messages, options = {}, settings = {}) {
  const producer = kafka.producer(settings);
  await producer.connect();
  try {
    return await producer.send({ topic, messages, ...options });
  } finally {
    await producer.disconnect();
  }
}

// `count` messages of a topic, read by a consumer in a group of its own; `seek` moves it first.
async function read(topic, count, seek) {
  const consumer = kafka.consumer({ groupId: fresh("group") });
  await consumer.connect();
  try {
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    return await new Promise((resolve, reject) => {
      const found = [];
      const timer = setTimeout(() => reject(new Error(`${found.length} of ${count} messages came`)), 30000);
      consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error));
      consumer.run({
        eachMessage: async ({ partition, message }) => {
          found.push({ partition, ...message });
          if (found.length === count) {
            clearTimeout(timer);
            resolve(found);
          }
        },
      });
      if (seek) consumer.seek({ topic, partition: 0, offset: seek });
    });
  } finally {
    await consumer.disconnect();
  }
}

before(() => admin.connect());
after(() => admin.disconnect());

test("the cluster is one broker, where it says it is", async () => {
  const cluster = await admin.describeCluster();
  assert.deepEqual(cluster.brokers.map((one) => `${one.host}:${one.port}`), [process.env.BOOTSTRAP]);
  assert.ok(cluster.clusterId);
});

test("topics are created, described, grown and deleted", async () => {
  const topic = await newTopic("life", 2);
  assert.ok((await admin.listTopics()).includes(topic));
  assert.equal(await admin.createTopics({ topics: [{ topic }] }), false);
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
  assert.equal(topics[0].partitions.length, 2);
  await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] });
  assert.equal((await admin.fetchTopicOffsets(topic)).length, 5);
  await admin.deleteTopics({ topics: [topic] });
  assert.ok(!(await admin.listTopics()).includes(topic));
});

test("settings are described and altered", async () => {
  const topic = await newTopic("settings", 1, [{ name: "retention.ms", value: "1000000" }]);
  const resource = { type: 2, name: topic };
  const value = async (name) => {
    const { resources } = await admin.describeConfigs({ resources: [{ ...resource, configNames: [name] }] });
    return resources[0].configEntries[0].configValue;
  };
  assert.equal(await value("retention.ms"), "1000000");
  const configEntries = [{ name: "retention.ms", value: "2000000" }];
  await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries }] });
  assert.equal(await value("retention.ms"), "2000000");
});

for (const [name, compression] of Object.entries(CODECS)) {
  test(`messages go in and offsets come back with ${name}`, async () => {
    const topic = await newTopic(name);
    const messages = [...Array(50).keys()].map((at) => ({ key: `k${at}`, value: `${at}-${"x".repeat(200)}` }));
    const [first] = await send(topic, messages, { compression });
    assert.equal(first.errorCode, 0);
    assert.equal(first.baseOffset, "0");
    const [offsets] = await admin.fetchTopicOffsets(topic);
    assert.deepEqual([offsets.low, offsets.high], ["0", "50"]);
  });

  test(`messages come back as they were with ${name}`, async () => {
    const topic = await newTopic(`${name}-back`);
    const sent = [
      { key: "key", value: "value", headers: { one: "1", two: Buffer.from([0, 255]) } },
      { key: null, value: "no key" },
      { key: "null value", value: null },
      { key: "empty value", value: "" },
      { key: "large", value: randomBytes(100000) },
    ];
    await send(topic, sent, { compression });
    const found = await read(topic, sent.length);
    found.forEach((message, at) => {
      assert.equal(message.offset, String(at));
      assert.deepEqual(message.key && message.key.toString(), sent[at].key);
      assert.deepEqual(message.value, sent[at].value === null ? null : Buffer.from(sent[at].value));
    });
    assert.deepEqual(found[0].headers, { one: Buffer.from("1"), two: Buffer.from([0, 255]) });
  });

  test(`messages from Python are read with ${name}`, async () => {
    const found = await read(`from-python-${name}`, 20);
    assert.deepEqual(found.map((message) => message.value.toString()), [...Array(20).keys()].map((at) => `${name}-${at}`));
  });
}

for (const acks of [0, 1, -1]) {
  test(`acks ${acks}`, async () => {
    const topic = await newTopic("acks");
    await send(topic, [{ value: "one" }, { value: "two" }], { acks });
    assert.equal((await read(topic, 2)).length, 2);
  });
}

test("an idempotent producer", async () => {
  const topic = await newTopic("idempotent");
  const messages = [...Array(500).keys()].map((at) => ({ value: String(at) }));
  await send(topic, messages, { acks: -1 }, { idempotent: true, maxInFlightRequests: 1 });
  const found = await read(topic, 500);
  assert.deepEqual(found.map((message) => message.value.toString()), messages.map((message) => message.value));
});

test("a consumer seeks", async () => {
  const topic = await newTopic("seek");
  await send(topic, [...Array(20).keys()].map((at) => ({ value: String(at) })));
  const found = await read(topic, 5, "15");
  assert.deepEqual(found.map((message) => message.offset), ["15", "16", "17", "18", "19"]);
});

test("offsets by time, and deleted records", async () => {
  const topic = await newTopic("offsets");
  const start = Date.now() - 100000;
  await send(topic, [...Array(10).keys()].map((at) => ({ value: String(at), timestamp: String(start + at * 1000) })));
  const [found] = await admin.fetchTopicOffsetsByTimestamp(topic, start + 4500);
  assert.equal(found.offset, "5");
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "3" }] });
  assert.equal((await admin.fetchTopicOffsets(topic))[0].low, "3");
});

test("a message that is too large is refused", async () => {
  const topic = await newTopic("narrow", 1, [{ name: "max.message.bytes", value: "2000" }]);
  await assert.rejects(send(topic, [{ value: "x".repeat(3000) }]), { type: "MESSAGE_TOO_LARGE" });
});
