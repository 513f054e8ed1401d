// A Flink job that copies a topic to another one in upper case, exactly once, until it has read COUNT messages' worth
// of input (a bounded source), with a checkpoint every half a second.

import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.CheckpointingMode;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class Copy {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], from = arguments[1], to = arguments[2];
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2);
        environment.enableCheckpointing(500, CheckpointingMode.EXACTLY_ONCE);
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(bootstrap)
            .setTopics(from)
            .setGroupId("flink")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.latest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        Properties producer = new Properties();
        producer.put("transaction.timeout.ms", "60000");
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(bootstrap)
            .setKafkaProducerConfig(producer)
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink-copy")
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic(to)
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "input")
            .map(new Upper())
            .sinkTo(sink);
        environment.execute("copy");
        System.out.println("done");
    }

    public static class Upper implements org.apache.flink.api.common.functions.MapFunction<String, String> {
        @Override
        public String map(String value) {
            return value.toUpperCase();
        }
    }
}
