// What every Java client since 2.0 can do: connect, create a topic, produce, consume in a group, commit a transaction.
// It uses only what kafka-clients 2.0 has, and prints one line: "ok", or "failed" with the reason.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

public class AnyVersion {
    private static final int COUNT = 100;
    private static final long PATIENCE_MS = 60_000;

    public static void main(String[] arguments) throws Exception {
        String step = "connecting";
        try {
            String bootstrap = arguments[0];
            String topic = "any-version-" + UUID.randomUUID();
            try (AdminClient admin = AdminClient.create(properties(bootstrap))) {
                step = "creating a topic";
                NewTopic wanted = new NewTopic(topic, 3, (short) 1);
                admin.createTopics(Collections.singleton(wanted)).all().get(PATIENCE_MS, TimeUnit.MILLISECONDS);
                step = "describing the cluster and its topics";
                admin.describeCluster().nodes().get(PATIENCE_MS, TimeUnit.MILLISECONDS);
                admin.describeTopics(Collections.singleton(topic));
            }
            step = "producing";
            for (String codec : Arrays.asList("none", "gzip", "lz4")) {
                try (KafkaProducer<String, String> producer = producer(bootstrap, null, codec)) {
                    send(producer, topic, codec);
                }
            }
            step = "consuming in a group";
            check(read(bootstrap, topic, 3 * COUNT), 3 * COUNT);
            step = "a transaction";
            String transacted = topic + "-txn";
            try (KafkaProducer<String, String> producer = producer(bootstrap, transacted, "none")) {
                producer.initTransactions();
                producer.beginTransaction();
                send(producer, transacted, "aborted");
                producer.abortTransaction();
                producer.beginTransaction();
                send(producer, transacted, "committed");
                producer.commitTransaction();
            }
            step = "reading what was committed";
            List<String> values = read(bootstrap, transacted, COUNT);
            check(values, COUNT);
            for (String value : values) {
                if (!value.startsWith("committed")) {
                    throw new IllegalStateException("read " + value);
                }
            }
            System.out.println("ok");
        } catch (Throwable error) {
            System.out.println("failed " + step + ": " + error);
            System.exit(1);
        }
    }

    private static void send(KafkaProducer<String, String> producer, String topic, String name) throws Exception {
        for (int number = 0; number < COUNT; number++) {
            producer.send(new ProducerRecord<>(topic, "key-" + number, name + "-" + number));
        }
        producer.flush();
    }

    private static List<String> read(String bootstrap, String topic, int count) {
        Properties properties = properties(bootstrap);
        properties.put("group.id", topic);
        properties.put("auto.offset.reset", "earliest");
        properties.put("isolation.level", "read_committed");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        List<String> values = new ArrayList<>();
        long end = System.currentTimeMillis() + PATIENCE_MS;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {
            consumer.subscribe(Collections.singleton(topic));
            while (values.size() < count && System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    values.add(record.value());
                }
            }
            consumer.commitSync();
        }
        return values;
    }

    private static void check(List<String> values, int count) {
        if (values.size() != count) {
            throw new IllegalStateException(values.size() + " records instead of " + count);
        }
    }

    private static KafkaProducer<String, String> producer(String bootstrap, String transactionalId, String codec) {
        Properties properties = properties(bootstrap);
        properties.put("acks", "all");
        properties.put("compression.type", codec);
        properties.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        properties.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        if (transactionalId != null) {
            properties.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(properties);
    }

    private static Properties properties(String bootstrap) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        return properties;
    }
}
