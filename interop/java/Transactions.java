// Transactions through Apache Kafka's Java clients, which use transaction version 2 where a broker announces it.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

public class Transactions {
    interface Check {
        void run() throws Exception;
    }

    private final String bootstrap;
    private final Admin admin;

    Transactions(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(properties());
    }

    public static void main(String[] arguments) throws Exception {
        Transactions transactions = new Transactions(arguments[0]);
        transactions.check("committed transactions are read, aborted and open ones are not", transactions::allOrNothing);
        transactions.check("a hundred transactions have a hundred epochs", transactions::movesEpochs);
        transactions.check("offsets are committed with the output, or not at all", transactions::commitsOffsets);
        transactions.check("a newer instance fences the older one", transactions::fences);
        transactions.check("Admin lists, describes and aborts transactions", transactions::administers);
        transactions.check("an abort without records, and a commit without records", transactions::endsNothing);
        transactions.admin.close();
    }

    private void check(String name, Check check) {
        long before = System.nanoTime();
        try {
            check.run();
            System.out.println("ok " + TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - before) + " " + name);
        } catch (Throwable failure) {
            System.out.println("failed " + name + ": " + failure);
        }
    }

    private Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }

    private KafkaProducer<String, String> producer(String transactionalId) {
        Properties properties = properties();
        properties.put("transactional.id", transactionalId);
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties);
        producer.initTransactions();
        return producer;
    }

    private KafkaConsumer<String, String> consumer(String group) {
        Properties properties = properties();
        properties.put("group.id", group);
        properties.put("enable.auto.commit", "false");
        properties.put("isolation.level", "read_committed");
        properties.put("auto.offset.reset", "earliest");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return new KafkaConsumer<>(properties);
    }

    private String topic(int partitions) throws Exception {
        String name = "java-txn-" + UUID.randomUUID();
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        return name;
    }

    private List<String> read(String topic, int partitions) {
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer("reader")) {
            List<TopicPartition> all = new ArrayList<>();
            for (int i = 0; i < partitions; i++) {
                all.add(new TopicPartition(topic, i));
            }
            consumer.assign(all);
            consumer.seekToBeginning(all);
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            while (all.stream().anyMatch(one -> consumer.position(one) < ends.get(one))) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    values.add(record.value());
                }
            }
        }
        return values;
    }

    private static void same(Object expected, Object found) {
        if (!expected.equals(found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    private void allOrNothing() throws Exception {
        String topic = topic(3);
        List<String> expected = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(topic)) {
            for (int number = 0; number < 9; number++) {
                producer.beginTransaction();
                for (int partition = 0; partition < 3; partition++) {
                    producer.send(new ProducerRecord<>(topic, partition, null, number + "-" + partition));
                    if (number % 3 != 1) {
                        expected.add(number + "-" + partition);
                    }
                }
                if (number % 3 == 1) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "open")).get();
            List<String> found = read(topic, 3);
            found.sort(null);
            expected.sort(null);
            same(expected, found);
            producer.abortTransaction();
        }
    }

    private void movesEpochs() throws Exception {
        String topic = topic(1);
        try (KafkaProducer<String, String> producer = producer(topic)) {
            for (int number = 0; number < 100; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, null, "" + number));
                producer.commitTransaction();
            }
        }
        same(100, read(topic, 1).size());
        TransactionDescription known = admin.describeTransactions(List.of(topic)).description(topic).get();
        same(100, known.producerEpoch());
        same(TransactionState.COMPLETE_COMMIT, known.state());
    }

    private void commitsOffsets() throws Exception {
        String source = topic(1);
        String target = topic(1);
        TopicPartition place = new TopicPartition(source, 0);
        try (KafkaProducer<String, String> producer = producer(target);
                KafkaConsumer<String, String> consumer = consumer(target)) {
            for (int number = 0; number < 20; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(source, 0, null, "" + number));
                producer.commitTransaction();
            }
            consumer.subscribe(List.of(source));
            int done = 0;
            boolean aborted = false;
            while (done < 20) {
                List<ConsumerRecord<String, String>> records = consumer.poll(Duration.ofSeconds(5)).records(place);
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(target, 0, null, record.value()));
                }
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                offsets.put(place, new OffsetAndMetadata(consumer.position(place)));
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (!aborted) {
                    aborted = true;
                    producer.abortTransaction();
                    same(null + "", consumer.committed(java.util.Set.of(place)).get(place) + "");
                    consumer.seek(place, 0);
                    continue;
                }
                producer.commitTransaction();
                done += records.size();
            }
            same(consumer.position(place), consumer.committed(java.util.Set.of(place)).get(place).offset());
        }
        same(20, read(target, 1).size());
    }

    private void fences() throws Exception {
        String topic = topic(1);
        KafkaProducer<String, String> zombie = producer(topic);
        zombie.beginTransaction();
        zombie.send(new ProducerRecord<>(topic, 0, null, "zombie")).get();
        KafkaProducer<String, String> successor = producer(topic);
        successor.beginTransaction();
        successor.send(new ProducerRecord<>(topic, 0, null, "successor")).get();
        try {
            zombie.commitTransaction();
            throw new AssertionError("the zombie committed");
        } catch (ProducerFencedException | InvalidProducerEpochException expected) {
            // As it should be.
        }
        successor.commitTransaction();
        zombie.close(Duration.ZERO);
        successor.close();
        same(List.of("successor"), read(topic, 1));
    }

    private void administers() throws Exception {
        String topic = topic(1);
        TopicPartition place = new TopicPartition(topic, 0);
        KafkaProducer<String, String> producer = producer(topic);
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, null, "hangs")).get();
        if (admin.listTransactions().all().get().stream().noneMatch(one -> one.transactionalId().equals(topic))) {
            throw new AssertionError("not listed");
        }
        TransactionDescription known = admin.describeTransactions(List.of(topic)).description(topic).get();
        same(TransactionState.ONGOING, known.state());
        same(java.util.Set.of(place), known.topicPartitions());
        ProducerState state = admin.describeProducers(List.of(place)).partitionResult(place).get().activeProducers().get(0);
        same(0L, state.currentTransactionStartOffset().getAsLong());
        admin.abortTransaction(
                        new AbortTransactionSpec(place, state.producerId(), (short) state.producerEpoch(), 0))
                .all()
                .get();
        same(List.of(), read(topic, 1));
        producer.abortTransaction();
        producer.close();
    }

    private void endsNothing() throws Exception {
        String topic = topic(1);
        try (KafkaProducer<String, String> producer = producer(topic)) {
            producer.beginTransaction();
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "v")).get();
            producer.commitTransaction();
        }
        same(List.of("v"), read(topic, 1));
    }
}
