import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DeletedRecords;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidTimestampException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicIdException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own Admin, producer and consumer against a broker whose address is the first argument.
 *
 * Each check prints "ok milliseconds name" or "failed name: reason". With "restart" as second argument it
 * produces while the caller stops and starts the broker, and then checks that every record is there, once and in order.
 */
public class Clients {
    interface Check {
        void run() throws Exception;
    }

    private final String bootstrap;
    private final Admin admin;
    private final int brokerId;

    Clients(String bootstrap) throws Exception {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(properties("default.api.timeout.ms", "20000", "request.timeout.ms", "15000"));
        this.brokerId = admin.describeCluster().nodes().get().iterator().next().id();
    }

    public static void main(String[] arguments) throws Exception {
        Clients clients = new Clients(arguments[0]);
        if (arguments.length > 1) {
            clients.check("an idempotent producer loses and doubles nothing", clients::producesOverRestarts);
        } else {
            clients.checkAll();
        }
        clients.admin.close();
    }

    private void checkAll() {
        check("describeCluster tells id, controller, broker and permissions", this::describesCluster);
        check("createTopics tells id, partitions and settings; describeTopics by name and id", this::describesTopics);
        check("createPartitions, listTopics, deleteTopics by name and by id", this::growsAndDeletesTopics);
        check("headers, null and empty keys and values, and timestamps come back as they were sent", this::roundTrip);
        check("every codec and acks level, with offsets in order", this::codecsAndAcks);
        check("beginningOffsets, endOffsets, seek, seekToBeginning, seekToEnd, currentLag", this::seeks);
        check("offsetsForTimes before, between, at and after the records", this::findsTimes);
        check("read_committed sees everything that is outside transactions", this::readsCommitted);
        check("a waiting consumer gets a record when it is produced", this::longPolls);
        check("many partitions with pause and resume, each in order", this::manyPartitions);
        check("a producer creates the topic it writes to", this::createsOnDemand);
        check("describeConfigs of a topic and of the broker, with defaults, types and docs", this::describesConfigs);
        check("incrementalAlterConfigs sets, deletes, appends, subtracts, or only validates", this::altersConfigs);
        check("a changed max.message.bytes is enforced at once", this::enforcesSize);
        check("a compacted topic refuses records without a key", this::requiresKeys);
        check("timestamps outside the topic's bounds are refused, LogAppendTime stamps", this::boundsTimestamps);
        check("deleteRecords moves the start, and a consumer before it is out of range", this::deletesRecords);
        check("describeLogDirs and describeReplicaLogDirs tell sizes and room", this::describesLogDirs);
        check("listOffsets by every kind of specification", this::listsOffsets);
    }

    private void check(String name, Check check) {
        long before = System.nanoTime();
        try {
            check.run();
            long tookMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - before);
            System.out.println("ok " + tookMs + " " + name);
        } catch (Throwable failure) {
            StringBuilder at = new StringBuilder();
            for (StackTraceElement frame : failure.getStackTrace()) {
                if (frame.getClassName().startsWith("Clients")) at.append(" at line ").append(frame.getLineNumber());
            }
            System.out.println("failed " + name + ": " + (failure + at.toString()).replace('\n', ' '));
        }
    }

    // -- what the checks are made of

    private static void expect(boolean holds, Object otherwise) {
        if (!holds) throw new AssertionError(String.valueOf(otherwise));
    }

    private static void same(Object wanted, Object found) {
        expect(wanted == null ? found == null : wanted.equals(found), "wanted " + wanted + ", found " + found);
    }

    private static void refused(Class<? extends Throwable> error, Future<?> future) throws Exception {
        try {
            future.get(20, TimeUnit.SECONDS);
        } catch (ExecutionException failure) {
            Throwable cause = failure.getCause();
            expect(error.isInstance(cause), "wanted " + error.getSimpleName() + ", got " + cause);
            return;
        }
        throw new AssertionError("wanted " + error.getSimpleName() + ", but it went well");
    }

    private TopicPartition topic(String name, Map<String, String> settings) throws Exception {
        topic(name, 1, settings);
        return new TopicPartition(name, 0);
    }

    private void topic(String name, int partitions, Map<String, String> settings) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(settings))).all().get();
    }

    private KafkaProducer<byte[], byte[]> producer(String... settings) {
        Properties properties = properties(settings);
        properties.putIfAbsent("delivery.timeout.ms", "60000");
        properties.putIfAbsent("request.timeout.ms", "15000");
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private KafkaConsumer<byte[], byte[]> consumer(String... settings) {
        Properties properties = properties(settings);
        properties.putIfAbsent("auto.offset.reset", "none");
        properties.putIfAbsent("enable.auto.commit", "false");
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Properties properties(String... settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        for (int at = 0; at < settings.length; at += 2) properties.put(settings[at], settings[at + 1]);
        return properties;
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    private static ProducerRecord<byte[], byte[]> record(TopicPartition to, Long timestamp, String key, String value) {
        return new ProducerRecord<>(to.topic(), to.partition(), timestamp, bytes(key), bytes(value));
    }

    /** Values "0", "1", ... one a second from the given time on; the time of the first. */
    private void fill(TopicPartition to, int count, long firstMs) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer("linger.ms", "5")) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int n = 0; n < count; n++) sent.add(producer.send(record(to, firstMs + 1000L * n, "k" + n, "" + n)));
            for (int n = 0; n < count; n++) same((long) n, sent.get(n).get().offset());
        }
    }

    private List<ConsumerRecord<byte[], byte[]>> read(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (records.size() < count && System.nanoTime() < end) {
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
        }
        same(count, records.size());
        return records;
    }

    private List<ConsumerRecord<byte[], byte[]>> readAll(TopicPartition from, int count) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            consumer.assign(List.of(from));
            consumer.seekToBeginning(List.of(from));
            return read(consumer, count);
        }
    }

    private Map<String, ConfigEntry> settings(ConfigResource of) throws Exception {
        Map<String, ConfigEntry> byName = new HashMap<>();
        Config config = admin.describeConfigs(List.of(of)).all().get().get(of);
        config.entries().forEach(entry -> byName.put(entry.name(), entry));
        return byName;
    }

    // -- the checks

    private void describesCluster() throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        same(1, cluster.nodes().get().size());
        same(brokerId, cluster.controller().get().id());
        same(bootstrap, cluster.controller().get().host() + ":" + cluster.controller().get().port());
        same(22, cluster.clusterId().get().length());
        var options = new DescribeClusterOptions().includeAuthorizedOperations(true);
        Set<AclOperation> allowed = admin.describeCluster(options).authorizedOperations().get();
        expect(allowed.containsAll(Set.of(AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE)), allowed);
    }

    private void describesTopics() throws Exception {
        NewTopic wanted = new NewTopic("described", 3, (short) 1).configs(Map.of("retention.ms", "60000"));
        var created = admin.createTopics(List.of(wanted));
        Uuid id = created.topicId("described").get();
        same(3, created.numPartitions("described").get());
        same(1, created.replicationFactor("described").get());
        same("60000", created.config("described").get().get("retention.ms").value());
        TopicDescription byName = admin.describeTopics(List.of("described")).allTopicNames().get().get("described");
        same(id, byName.topicId());
        same(3, byName.partitions().size());
        byName.partitions().forEach(partition -> same(brokerId, partition.leader().id()));
        var byId = admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get();
        same("described", byId.get(id).name());
        refused(TopicExistsException.class, admin.createTopics(List.of(wanted)).all());
        refused(UnknownTopicOrPartitionException.class, admin.describeTopics(List.of("nowhere")).allTopicNames());
        TopicCollection nobody = TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()));
        refused(UnknownTopicIdException.class, admin.describeTopics(nobody).allTopicIds());
        NewTopic defaults = new NewTopic("defaults", Optional.empty(), Optional.empty());
        same(4, admin.createTopics(List.of(defaults)).numPartitions("defaults").get());
    }

    private void growsAndDeletesTopics() throws Exception {
        topic("grown", 1, Map.of());
        topic("by-id", 1, Map.of());
        admin.createPartitions(Map.of("grown", NewPartitions.increaseTo(6))).all().get();
        same(6, admin.describeTopics(List.of("grown")).allTopicNames().get().get("grown").partitions().size());
        fill(new TopicPartition("grown", 5), 3, System.currentTimeMillis());
        Uuid id = admin.describeTopics(List.of("by-id")).allTopicNames().get().get("by-id").topicId();
        expect(admin.listTopics().names().get().containsAll(Set.of("grown", "by-id")), "not listed");
        admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
        admin.deleteTopics(List.of("grown")).all().get();
        Set<String> left = admin.listTopics().names().get();
        expect(!left.contains("grown") && !left.contains("by-id"), left);
        refused(UnknownTopicOrPartitionException.class, admin.deleteTopics(List.of("grown")).all());
        // The same name again is another topic: none of the old records may show.
        TopicPartition again = topic("grown", Map.of());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            same(Map.of(again, 0L), consumer.endOffsets(List.of(again)));
        }
    }

    private void roundTrip() throws Exception {
        TopicPartition to = topic("round-trip", Map.of());
        long now = System.currentTimeMillis();
        List<ProducerRecord<byte[], byte[]>> sent = List.of(
            record(to, now, "key", "value"), record(to, now - 5, null, "no key"), record(to, now + 5, "no value", null),
            record(to, now, null, null), record(to, now, "", ""), record(to, 0L, "\u00fc\u4e16", "x".repeat(200_000)));
        sent.get(0).headers().add("one", bytes("1")).add("two", bytes("")).add("one", bytes("again")).add("none", null);
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (int n = 0; n < sent.size(); n++) {
                RecordMetadata told = producer.send(sent.get(n)).get();
                same((long) n, told.offset());
                same(sent.get(n).timestamp(), told.timestamp());
            }
        }
        List<ConsumerRecord<byte[], byte[]>> found = readAll(to, sent.size());
        for (int n = 0; n < sent.size(); n++) {
            same(text(sent.get(n).key()), text(found.get(n).key()));
            same(text(sent.get(n).value()), text(found.get(n).value()));
            same(sent.get(n).timestamp(), found.get(n).timestamp());
            same((long) n, found.get(n).offset());
            same(Optional.of(0), found.get(n).leaderEpoch());
        }
        StringBuilder headers = new StringBuilder();
        for (Header header : found.get(0).headers()) headers.append(header.key() + "=" + text(header.value()) + " ");
        same("one=1 two= one=again none=null ", headers.toString());
        same(0, found.get(1).headers().toArray().length);
    }

    private void codecsAndAcks() throws Exception {
        TopicPartition to = topic("codecs", Map.of());
        int count = 500;
        long next = 0;
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            for (String acks : List.of("0", "1", "all")) {
                String idempotence = acks.equals("all") ? "true" : "false";
                try (KafkaProducer<byte[], byte[]> producer = producer(
                        "compression.type", codec, "acks", acks, "enable.idempotence", idempotence, "linger.ms", "5")) {
                    List<Future<RecordMetadata>> sent = new ArrayList<>();
                    for (int n = 0; n < count; n++) sent.add(producer.send(record(to, null, codec, acks + ":" + n)));
                    for (int n = 0; n < count; n++) same(acks.equals("0") ? -1L : next + n, sent.get(n).get().offset());
                    next += count;
                }
            }
        }
        List<ConsumerRecord<byte[], byte[]>> found = readAll(to, (int) next);
        for (int n = 0; n < next; n++) {
            same((long) n, found.get(n).offset());
            expect(text(found.get(n).value()).endsWith(":" + n % count), text(found.get(n).value()));
        }
    }

    private void seeks() throws Exception {
        TopicPartition to = topic("seeks", Map.of());
        fill(to, 100, System.currentTimeMillis());
        List<TopicPartition> one = List.of(to);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("max.poll.records", "10")) {
            consumer.assign(one);
            same(Map.of(to, 0L), consumer.beginningOffsets(one));
            same(Map.of(to, 100L), consumer.endOffsets(one));
            consumer.seekToEnd(one);
            same(100L, consumer.position(to));
            same(0, consumer.poll(Duration.ofMillis(300)).count());
            consumer.seek(to, 42);
            same("42", text(read(consumer, 10).get(0).value()));
            same(48L, consumer.currentLag(to).getAsLong());
            consumer.seekToBeginning(one);
            same(0L, consumer.position(to));
            same("0", text(read(consumer, 100).get(0).value()));
            same(1, consumer.partitionsFor("seeks").size());
        }
    }

    private void findsTimes() throws Exception {
        TopicPartition to = topic("find-times", Map.of());
        TopicPartition empty = topic("find-times-empty", Map.of());
        long first = System.currentTimeMillis() - 100_000;
        fill(to, 50, first);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer()) {
            long[][] wanted = {{0, 0}, {first, 0}, {first + 1, 1}, {first + 20_000, 20}, {first + 48_001, 49}};
            for (long[] pair : wanted) {
                OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(to, pair[0])).get(to);
                same(pair[1], found.offset());
                same(first + 1000 * pair[1], found.timestamp());
            }
            var none = consumer.offsetsForTimes(Map.of(to, first + 49_001, empty, 0L));
            same(null, none.get(to));
            same(null, none.get(empty));
        }
    }

    private void readsCommitted() throws Exception {
        TopicPartition to = topic("committed", Map.of());
        fill(to, 200, System.currentTimeMillis());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("isolation.level", "read_committed")) {
            consumer.assign(List.of(to));
            consumer.seekToBeginning(List.of(to));
            read(consumer, 200);
            same(Map.of(to, 200L), consumer.endOffsets(List.of(to)));
        }
        var options = new ListOffsetsOptions(IsolationLevel.READ_COMMITTED);
        same(200L, admin.listOffsets(Map.of(to, OffsetSpec.latest()), options).partitionResult(to).get().offset());
    }

    private void longPolls() throws Exception {
        TopicPartition to = topic("follow", Map.of());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("fetch.max.wait.ms", "4000", "fetch.min.bytes", "1");
                KafkaProducer<byte[], byte[]> producer = producer()) {
            consumer.assign(List.of(to));
            consumer.seekToEnd(List.of(to));
            same(0, consumer.poll(Duration.ofMillis(500)).count());
            for (int n = 0; n < 5; n++) {
                producer.send(record(to, null, null, "" + n)).get();
                long before = System.nanoTime();
                same("" + n, text(read(consumer, 1).get(0).value()));
                long tookMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - before);
                expect(tookMs < 2_000, "the record came after " + tookMs + " ms");
            }
        }
    }

    private void manyPartitions() throws Exception {
        int partitions = 40;
        int each = 50;
        topic("many", partitions, Map.of());
        List<TopicPartition> all = new ArrayList<>();
        for (int at = 0; at < partitions; at++) all.add(new TopicPartition("many", at));
        try (KafkaProducer<byte[], byte[]> producer = producer("compression.type", "lz4", "linger.ms", "5")) {
            for (int n = 0; n < each; n++) {
                for (TopicPartition to : all) producer.send(record(to, null, null, "" + n));
            }
        }
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("max.partition.fetch.bytes", "200")) {
            consumer.assign(all);
            consumer.seekToBeginning(all);
            List<TopicPartition> held = all.subList(0, 10);
            consumer.pause(held);
            Map<TopicPartition, Integer> next = new HashMap<>();
            Collection<ConsumerRecord<byte[], byte[]>> found = read(consumer, (partitions - held.size()) * each);
            consumer.resume(held);
            found.addAll(read(consumer, held.size() * each));
            for (ConsumerRecord<byte[], byte[]> record : found) {
                int n = next.merge(new TopicPartition("many", record.partition()), 1, Integer::sum) - 1;
                same("" + n, text(record.value()));
                same((long) n, record.offset());
            }
            same(partitions, next.size());
        }
    }

    private void createsOnDemand() throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            same(0L, producer.send(new ProducerRecord<>("on-demand", bytes("key"), bytes("value"))).get().offset());
            same(4, producer.partitionsFor("on-demand").size());
        }
    }

    private void describesConfigs() throws Exception {
        topic("configured", 1, Map.of("retention.ms", "60000", "max.message.bytes", "5000"));
        Map<String, ConfigEntry> found = settings(new ConfigResource(ConfigResource.Type.TOPIC, "configured"));
        same("60000", found.get("retention.ms").value());
        same(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, found.get("retention.ms").source());
        same(ConfigEntry.ConfigType.LONG, found.get("retention.ms").type());
        same(ConfigEntry.ConfigSource.DEFAULT_CONFIG, found.get("delete.retention.ms").source());
        same(ConfigEntry.ConfigType.LIST, found.get("cleanup.policy").type());
        Map<String, ConfigEntry> broker = settings(new ConfigResource(ConfigResource.Type.BROKER, "" + brokerId));
        same("true", broker.get("auto.create.topics.enable").value());
        same(ConfigEntry.ConfigType.BOOLEAN, broker.get("auto.create.topics.enable").type());
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "configured");
        var options = new DescribeConfigsOptions().includeDocumentation(true).includeSynonyms(true);
        Config all = admin.describeConfigs(List.of(topic), options).all().get().get(topic);
        ConfigEntry full = all.get("max.message.bytes");
        List<String> synonyms = full.synonyms().stream().map(ConfigEntry.ConfigSynonym::name).toList();
        same(List.of("max.message.bytes", "message.max.bytes"), synonyms);
        expect(!full.documentation().isEmpty(), "no documentation");
        refused(UnknownTopicOrPartitionException.class,
            admin.describeConfigs(List.of(new ConfigResource(ConfigResource.Type.TOPIC, "nowhere"))).all());
    }

    private void alter(ConfigResource of, OpType operation, String name, String value) throws Exception {
        alter(of, operation, name, value, new AlterConfigsOptions());
    }

    private void alter(ConfigResource of, OpType operation, String name, String value, AlterConfigsOptions options)
            throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), operation);
        try {
            admin.incrementalAlterConfigs(Map.of(of, List.of(change)), options).all().get();
        } catch (ExecutionException failure) {
            throw (Exception) failure.getCause();
        }
    }

    private void altersConfigs() throws Exception {
        topic("altered", 1, Map.of());
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, "altered");
        alter(resource, OpType.SET, "retention.ms", "1234567", new AlterConfigsOptions().validateOnly(true));
        same("604800000", settings(resource).get("retention.ms").value());
        alter(resource, OpType.SET, "retention.ms", "1234567");
        alter(resource, OpType.APPEND, "cleanup.policy", "compact");
        Map<String, ConfigEntry> found = settings(resource);
        same("1234567", found.get("retention.ms").value());
        same("delete,compact", found.get("cleanup.policy").value());
        alter(resource, OpType.SUBTRACT, "cleanup.policy", "delete");
        alter(resource, OpType.DELETE, "retention.ms", null);
        found = settings(resource);
        same("604800000", found.get("retention.ms").value());
        same("compact", found.get("cleanup.policy").value());
        String[][] refused = {{"retention.ms", "soon"}, {"cleanup.policy", "burn"}, {"nonsense", "1"}};
        for (String[] bad : refused) {
            try {
                alter(resource, OpType.SET, bad[0], bad[1]);
            } catch (InvalidConfigurationException reason) {
                expect(reason.getMessage().contains(bad[0]), reason.getMessage());
                continue;
            }
            throw new AssertionError(bad[0] + "=" + bad[1] + " was accepted");
        }
    }

    private void enforcesSize() throws Exception {
        TopicPartition to = topic("sizes", Map.of());
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, "sizes");
        try (KafkaProducer<byte[], byte[]> producer = producer("max.request.size", "10000000")) {
            producer.send(record(to, null, null, "x".repeat(1_000_000))).get();
            refused(RecordTooLargeException.class, producer.send(record(to, null, null, "x".repeat(1_100_000))));
            alter(resource, OpType.SET, "max.message.bytes", "2000000");
            producer.send(record(to, null, null, "x".repeat(1_100_000))).get();
            alter(resource, OpType.SET, "max.message.bytes", "1000");
            refused(RecordTooLargeException.class, producer.send(record(to, null, null, "x".repeat(1_100))));
            producer.send(record(to, null, null, "x")).get();
        }
        same(1_100_000, readAll(to, 3).get(1).value().length);
    }

    private void requiresKeys() throws Exception {
        TopicPartition to = topic("keys", Map.of("cleanup.policy", "compact"));
        try (KafkaProducer<byte[], byte[]> producer = producer("compression.type", "gzip")) {
            refused(InvalidRecordException.class, producer.send(record(to, null, null, "no key")));
            producer.send(record(to, null, "key", "value")).get();
        }
    }

    private void boundsTimestamps() throws Exception {
        String limit = "60000";
        TopicPartition bounded = topic(
            "bounded", Map.of("message.timestamp.before.max.ms", limit, "message.timestamp.after.max.ms", limit));
        TopicPartition stamped = topic("stamped", Map.of("message.timestamp.type", "LogAppendTime"));
        long now = System.currentTimeMillis();
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            producer.send(record(bounded, now, null, "now")).get();
            refused(InvalidTimestampException.class, producer.send(record(bounded, now - 600_000, null, "past")));
            refused(InvalidTimestampException.class, producer.send(record(bounded, now + 600_000, null, "future")));
            RecordMetadata told = producer.send(record(stamped, 5L, null, "stamped")).get();
            expect(told.timestamp() >= now - 1000 && told.timestamp() < now + 60_000, told.timestamp());
            ConsumerRecord<byte[], byte[]> found = readAll(stamped, 1).get(0);
            same(told.timestamp(), found.timestamp());
            same(TimestampType.LOG_APPEND_TIME, found.timestampType());
        }
    }

    private void deletesRecords() throws Exception {
        TopicPartition to = topic("truncated", Map.of());
        fill(to, 100, System.currentTimeMillis());
        same(30L, delete(to, 30).get().lowWatermark());
        refused(org.apache.kafka.common.errors.OffsetOutOfRangeException.class, delete(to, 101));
        try (KafkaConsumer<byte[], byte[]> strict = consumer();
                KafkaConsumer<byte[], byte[]> lenient = consumer("auto.offset.reset", "earliest")) {
            same(Map.of(to, 30L), strict.beginningOffsets(List.of(to)));
            strict.assign(List.of(to));
            strict.seek(to, 10);
            try {
                strict.poll(Duration.ofSeconds(10));
                throw new AssertionError("read from before the start");
            } catch (OffsetOutOfRangeException expected) {
                same(Map.of(to, 10L), expected.offsetOutOfRangePartitions());
            }
            lenient.assign(List.of(to));
            lenient.seek(to, 10);
            same("30", text(read(lenient, 70).get(0).value()));
        }
        same(100L, delete(to, -1).get().lowWatermark());
    }

    private Future<DeletedRecords> delete(TopicPartition from, long before) {
        return admin.deleteRecords(Map.of(from, RecordsToDelete.beforeOffset(before))).lowWatermarks().get(from)
            .toCompletionStage().toCompletableFuture();
    }

    private void describesLogDirs() throws Exception {
        TopicPartition to = topic("sized", Map.of());
        fill(to, 100, System.currentTimeMillis());
        var dirs = admin.describeLogDirs(List.of(brokerId)).allDescriptions().get().get(brokerId);
        same(1, dirs.size());
        LogDirDescription dir = dirs.values().iterator().next();
        same(null, dir.error());
        expect(dir.totalBytes().getAsLong() > dir.usableBytes().getAsLong(), dir);
        var sized = dir.replicaInfos().get(to);
        expect(sized.size() > 500 && !sized.isFuture(), sized);
        var replica = new TopicPartitionReplica("sized", 0, brokerId);
        var info = admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica);
        same(dirs.keySet().iterator().next(), info.getCurrentReplicaLogDir());
    }

    private void listsOffsets() throws Exception {
        TopicPartition to = topic("listed", Map.of());
        long first = System.currentTimeMillis() - 60_000;
        fill(to, 10, first);
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            producer.send(record(to, first - 1, null, "late")).get();
        }
        Map<OffsetSpec, long[]> wanted = Map.of(
            OffsetSpec.earliest(), new long[] {0, -1}, OffsetSpec.latest(), new long[] {11, -1},
            OffsetSpec.maxTimestamp(), new long[] {9, first + 9000}, OffsetSpec.earliestLocal(), new long[] {0, -1},
            OffsetSpec.latestTiered(), new long[] {-1, -1},
            OffsetSpec.forTimestamp(first + 4500), new long[] {5, first + 5000},
            OffsetSpec.forTimestamp(first + 100_000), new long[] {-1, -1});
        for (Map.Entry<OffsetSpec, long[]> each : wanted.entrySet()) {
            ListOffsetsResultInfo found = admin.listOffsets(Map.of(to, each.getKey())).partitionResult(to).get();
            String what = each.getKey().getClass().getSimpleName();
            expect(Arrays.equals(each.getValue(), new long[] {found.offset(), found.timestamp()}), what + ": " + found);
        }
    }

    /** Each "more" on stdin is answered when 2,000 more records have been acknowledged; anything else is the end. */
    private void producesOverRestarts() throws Exception {
        int partitions = 3;
        topic("restarts", partitions, Map.of());
        AtomicInteger acknowledged = new AtomicInteger();
        CountDownLatch ending = new CountDownLatch(1);
        List<String> failures = Collections.synchronizedList(new ArrayList<>());
        Thread listener = new Thread(() -> {
            try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
                while ("more".equals(in.readLine())) {
                    int enough = acknowledged.get() + 2_000;
                    while (acknowledged.get() < enough && failures.isEmpty()) Thread.sleep(5);
                    System.out.println("more");
                }
            } catch (IOException | InterruptedException broken) {
                failures.add(broken.toString());
            }
            ending.countDown();
        });
        listener.start();
        int sent = 0;
        try (KafkaProducer<byte[], byte[]> producer = producer("linger.ms", "2", "reconnect.backoff.max.ms", "200")) {
            while (ending.getCount() > 0 && failures.isEmpty()) {
                int number = sent++;
                TopicPartition to = new TopicPartition("restarts", number % partitions);
                producer.send(record(to, null, null, "" + number), (told, error) -> {
                    if (error == null) acknowledged.incrementAndGet();
                    else failures.add(number + ": " + error);
                });
                // Around 10,000 records a second: a steady stream under which the broker goes away.
                if (number % 100 == 99) ending.await(10, TimeUnit.MILLISECONDS);
            }
        }
        expect(failures.isEmpty(), failures.size() + " failed, the first: " + failures.stream().findFirst());
        same(sent, acknowledged.get());
        for (int at = 0; at < partitions; at++) {
            TopicPartition from = new TopicPartition("restarts", at);
            int count = (sent - at + partitions - 1) / partitions;
            var latest = admin.listOffsets(Map.of(from, OffsetSpec.latest()));
            same((long) count, latest.partitionResult(from).get().offset());
            int expected = at;
            for (ConsumerRecord<byte[], byte[]> found : readAll(from, count)) {
                same("" + expected, text(found.value()));
                expected += partitions;
            }
        }
    }
}
