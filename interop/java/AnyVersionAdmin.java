import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Collections;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.SecurityDisabledException;

/**
 * Everything that Admin of any age asks of a broker: compiled with kafka-clients 2.0, run with any later one. A method
 * that some versions do not have is called by its name, and left out where it is missing.
 *
 * <p>The argument is the address of a broker with the id 0. It prints "ok", or what failed and why.
 */
public class AnyVersionAdmin {
    private static final long WAIT_S = 30;

    private interface Work {
        void run() throws Exception;
    }

    private static void check(String what, Work work) {
        try {
            work.run();
        } catch (Throwable error) {
            System.out.println("failed " + what + ": " + error);
            System.exit(1);
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
        String topic = "any-version-" + UUID.randomUUID();
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        try (AdminClient admin = AdminClient.create(settings)) {
            topics(admin, topic);
            describe(admin, topic);
        }
        System.out.println("ok");
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
}
