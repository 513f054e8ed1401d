import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.Collections;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What a program does with Kafka's Java clients of any age: compiles and runs with kafka-clients 2.0 to 4.x. A method
 * that some versions do not have is called by its name, and left out where it is missing.
 *
 * <p>Arguments: the address of a broker with the id 0, and a name for the topic and the group. One line for each check:
 * "ok", its milliseconds and what was checked, or "failed", what was checked and why.
 */
public class Ages {
    private static final long WAIT_S = 30;
    private static final int RECORDS = 10;

    private interface Work {
        void run() throws Exception;
    }

    private static void check(String what, Work work) {
        long began = System.nanoTime();
        try {
            work.run();
            System.out.println("ok " + (System.nanoTime() - began) / 1_000_000 + " " + what);
        } catch (Throwable error) {
            System.out.println("failed " + what + ": " + String.valueOf(error).replace('\n', ' '));
        }
    }

    private static void expect(boolean holds, Object found) {
        if (!holds) {
            throw new AssertionError("found " + found);
        }
    }

    private static <T> T wait(Future<T> future) throws Exception {
        return future.get(WAIT_S, TimeUnit.SECONDS);
    }

    /** The result of the first of these methods that there is; null if there is none. */
    private static Object call(Object on, String... names) throws Exception {
        for (String name : names) {
            try {
                Method method = on.getClass().getMethod(name);
                method.setAccessible(true);
                return method.invoke(on);
            } catch (NoSuchMethodException missing) {
                continue;
            } catch (InvocationTargetException error) {
                throw (Exception) error.getCause();
            }
        }
        return null;
    }

    /** Whether a listing that has no arguments can be had, where this version of the client knows it. */
    private static void list(AdminClient admin, String method, String result) throws Exception {
        Object asked = call(admin, method);
        if (asked != null) {
            expect(wait((Future<?>) call(asked, result)) != null, null);
        }
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        try (AdminClient admin = AdminClient.create(settings)) {
            topics(admin, topic);
            describe(admin, topic);
        }
        records(bootstrap, topic);
    }

    private static void topics(AdminClient admin, String topic) {
        check("createTopics with a setting, describeTopics, createPartitions", () -> {
            NewTopic wanted = new NewTopic(topic, 2, (short) 1).configs(Map.of("preallocate", "true"));
            wait(admin.createTopics(Collections.singleton(wanted)).all());
            expect(wait(admin.listTopics().names()).contains(topic), "no topic");
            Object described = call(admin.describeTopics(Collections.singleton(topic)), "allTopicNames", "all");
            expect(wait((Future<?>) described).toString().contains("leader="), described);
            wait(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all());
        });
    }

    private static void describe(AdminClient admin, String topic) {
        check("describeCluster, describeFeatures", () -> {
            expect(wait(admin.describeCluster().nodes()).size() == 1, "not one broker");
            list(admin, "describeFeatures", "featureMetadata");
        });
        check("describeConfigs of a topic and a broker", () -> {
            ConfigResource of = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            ConfigEntry entry = wait(admin.describeConfigs(Collections.singleton(of)).all()).get(of).get("preallocate");
            expect(entry.value().equals("true") && !entry.isDefault(), entry);
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "0");
            expect(
                wait(admin.describeConfigs(Collections.singleton(broker)).all()).get(broker).get("log.dirs") != null,
                "no log.dirs");
        });
        check("describeAcls says that security is disabled", () -> {
            try {
                wait(admin.describeAcls(AclBindingFilter.ANY).values());
                throw new AssertionError("no error");
            } catch (ExecutionException error) {
                expect(error.getCause() instanceof SecurityDisabledException, error);
            }
        });
        check("describeLogDirs, and the listings that this version has", () -> {
            Object dirs = call(admin.describeLogDirs(Collections.singleton(0)), "allDescriptions", "all");
            expect(!wait((Future<?>) dirs).toString().equals("{}"), "no directory");
            list(admin, "listConsumerGroups", "all");
            list(admin, "listPartitionReassignments", "reassignments");
            list(admin, "listTransactions", "all");
            list(admin, "describeUserScramCredentials", "all");
            list(admin, "listClientMetricsResources", "all");
        });
    }

    private static Properties producing(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        return settings;
    }

    private static KafkaProducer<String, String> producer(Properties settings) {
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static void records(String bootstrap, String topic) {
        check("an idempotent producer", () -> {
            try (KafkaProducer<String, String> producer = producer(producing(bootstrap))) {
                for (int number = 0; number < RECORDS; number++) {
                    wait(producer.send(new ProducerRecord<>(topic, "key-" + number, "value")));
                }
            }
        });
        check("a transaction", () -> {
            Properties settings = producing(bootstrap);
            settings.put("transactional.id", topic);
            try (KafkaProducer<String, String> producer = producer(settings)) {
                producer.initTransactions();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "key", "value"));
                producer.commitTransaction();
            }
        });
        check("a consumer of a group reads all of it and commits", () -> {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", bootstrap);
            settings.put("group.id", topic);
            settings.put("auto.offset.reset", "earliest");
            settings.put("isolation.level", "read_committed");
            try (KafkaConsumer<String, String> consumer =
                    new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
                consumer.subscribe(Collections.singleton(topic));
                int count = 0;
                long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
                while (count < RECORDS + 1 && System.nanoTime() < end) {
                    count += consumer.poll(Duration.ofMillis(500)).count();
                }
                expect(count == RECORDS + 1, count);
                consumer.commitSync();
            }
        });
    }
}
