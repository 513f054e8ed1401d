// sarama and kafka-go against a broker: create a topic, produce with every codec, consume in a group, commit and go on.
// One line for each check, as `ok NAME` or `failed NAME: REASON`; an exit code of 1 if one failed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
)

const (
	count    = 200
	patience = 60 * time.Second
)

func main() {
	address := os.Args[1]
	failed := false
	for _, check := range []struct {
		name string
		run  func(string) error
	}{
		{"sarama: produce with every codec, consume in a group, go on behind a commit", checkSarama},
		{"sarama: transactions", checkSaramaTransactions},
		{"kafka-go: produce with every codec, consume in a group, go on behind a commit", checkKafkaGo},
	} {
		if err := check.run(address); err != nil {
			fmt.Printf("failed %s: %v\n", check.name, err)
			failed = true
		} else {
			fmt.Printf("ok %s\n", check.name)
		}
	}
	if failed {
		os.Exit(1)
	}
}

func wanted(parts int) []string {
	values := make([]string, 0, parts*count)
	for part := 0; part < parts; part++ {
		for number := 0; number < count; number++ {
			values = append(values, fmt.Sprintf("%d-%d", part, number))
		}
	}
	sort.Strings(values)
	return values
}

func same(got, want []string) error {
	sort.Strings(got)
	if len(got) != len(want) {
		return fmt.Errorf("%d messages instead of %d", len(got), len(want))
	}
	for at := range got {
		if got[at] != want[at] {
			return fmt.Errorf("%q instead of %q", got[at], want[at])
		}
	}
	return nil
}

// --- sarama

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	return config
}

func checkSarama(address string) error {
	const topic, group = "sarama", "sarama-group"
	admin, err := sarama.NewClusterAdmin([]string{address}, saramaConfig())
	if err != nil {
		return err
	}
	defer admin.Close()
	detail := &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1}
	if err := admin.CreateTopic(topic, detail, false); err != nil {
		return err
	}
	codecs := []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4,
		sarama.CompressionZSTD,
	}
	for part, codec := range codecs {
		config := saramaConfig()
		config.Producer.Compression = codec
		if err := saramaSend(address, config, topic, part); err != nil {
			return err
		}
	}
	got, err := saramaRead(address, group, topic, len(codecs)*count)
	if err != nil {
		return err
	}
	if err := same(got, wanted(len(codecs))); err != nil {
		return err
	}
	if err := saramaSend(address, saramaConfig(), topic, 9); err != nil {
		return err
	}
	again, err := saramaRead(address, group, topic, count)
	if err != nil {
		return err
	}
	for _, value := range again {
		if value[0] != '9' {
			return fmt.Errorf("%s came again behind the commit", value)
		}
	}
	return nil
}

func saramaSend(address string, config *sarama.Config, topic string, part int) error {
	producer, err := sarama.NewSyncProducer([]string{address}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, count)
	for number := range messages {
		value := sarama.StringEncoder(fmt.Sprintf("%d-%d", part, number))
		messages[number] = &sarama.ProducerMessage{Topic: topic, Value: value}
	}
	return producer.SendMessages(messages)
}

type handler struct {
	values chan string
}

func (h *handler) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup is called when the session ends: what was marked is committed then.
func (h *handler) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			session.MarkMessage(message, "")
			h.values <- string(message.Value)
		case <-session.Context().Done():
			return nil
		}
	}
}

func saramaRead(address, group, topic string, wantedCount int) ([]string, error) {
	consumer, err := sarama.NewConsumerGroup([]string{address}, group, saramaConfig())
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reader := &handler{values: make(chan string, wantedCount)}
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := consumer.Consume(ctx, []string{topic}, reader); err != nil {
				ended <- err
				return
			}
		}
		ended <- ctx.Err()
	}()
	got := make([]string, 0, wantedCount)
	for len(got) < wantedCount {
		select {
		case value := <-reader.values:
			got = append(got, value)
		case err := <-ended:
			return got, fmt.Errorf("%d of %d messages, then %w", len(got), wantedCount, err)
		}
	}
	cancel()
	<-ended
	return got, nil
}

func checkSaramaTransactions(address string) error {
	const topic = "sarama-txn"
	config := saramaConfig()
	config.Producer.Transaction.ID = "sarama-txn"
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	admin, err := sarama.NewClusterAdmin([]string{address}, config)
	if err != nil {
		return err
	}
	defer admin.Close()
	detail := &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}
	if err := admin.CreateTopic(topic, detail, false); err != nil {
		return err
	}
	producer, err := sarama.NewSyncProducer([]string{address}, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	for _, value := range []string{"aborted", "committed"} {
		if err := producer.BeginTxn(); err != nil {
			return err
		}
		message := &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)}
		if _, _, err := producer.SendMessage(message); err != nil {
			return err
		}
		end := producer.CommitTxn
		if value == "aborted" {
			end = producer.AbortTxn
		}
		if err := end(); err != nil {
			return err
		}
	}
	consumer, err := sarama.NewConsumer([]string{address}, config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return err
	}
	defer partition.Close()
	select {
	case message := <-partition.Messages():
		if string(message.Value) != "committed" {
			return fmt.Errorf("read %s", message.Value)
		}
		return nil
	case <-time.After(patience):
		return errors.New("nothing was read")
	}
}

// --- kafka-go

func checkKafkaGo(address string) error {
	const topic, group = "kafka-go", "kafka-go-group"
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client := &kafka.Client{Addr: kafka.TCP(address), Timeout: patience}
	created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 3, ReplicationFactor: 1}},
	})
	if err != nil {
		return err
	}
	if err := created.Errors[topic]; err != nil {
		return err
	}
	codecs := []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}
	for part, codec := range codecs {
		if err := kafkaGoSend(ctx, address, topic, part, codec); err != nil {
			return err
		}
	}
	got, err := kafkaGoRead(ctx, address, group, topic, len(codecs)*count)
	if err != nil {
		return err
	}
	if err := same(got, wanted(len(codecs))); err != nil {
		return err
	}
	if err := kafkaGoSend(ctx, address, topic, 9, 0); err != nil {
		return err
	}
	again, err := kafkaGoRead(ctx, address, group, topic, count)
	if err != nil {
		return err
	}
	for _, value := range again {
		if value[0] != '9' {
			return fmt.Errorf("%s came again behind the commit", value)
		}
	}
	return nil
}

func kafkaGoSend(ctx context.Context, address, topic string, part int, codec kafka.Compression) error {
	writer := &kafka.Writer{
		Addr: kafka.TCP(address), Topic: topic, RequiredAcks: kafka.RequireAll, Compression: codec,
		BatchTimeout: 10 * time.Millisecond,
	}
	messages := make([]kafka.Message, count)
	for number := range messages {
		messages[number] = kafka.Message{Value: []byte(fmt.Sprintf("%d-%d", part, number))}
	}
	if err := writer.WriteMessages(ctx, messages...); err != nil {
		return err
	}
	return writer.Close()
}

func kafkaGoRead(ctx context.Context, address, group, topic string, wantedCount int) ([]string, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{address}, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset,
		MaxWait: 500 * time.Millisecond,
	})
	defer reader.Close()
	got, last := make([]string, 0, wantedCount), map[int]kafka.Message{}
	for len(got) < wantedCount {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			return got, fmt.Errorf("%d of %d messages, then %w", len(got), wantedCount, err)
		}
		got = append(got, string(message.Value))
		last[message.Partition] = message
	}
	for _, message := range last {
		if err := reader.CommitMessages(ctx, message); err != nil {
			return got, err
		}
	}
	return got, nil
}
