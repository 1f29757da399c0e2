package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// producers sends; one producer a group, started when first asked for.
type producers struct {
	nameServer string
	started    map[string]rocketmq.Producer
}

func newProducers(nameServer string) *producers {
	return &producers{nameServer, map[string]rocketmq.Producer{}}
}

func (p *producers) register(operations map[string]operation) {
	operations["send"] = p.send
	operations["route"] = p.route
	operations["queues"] = p.route
}

// chosen takes the queue that the message names, otherwise the next one.
type chosen struct{ otherwise producer.QueueSelector }

func (c chosen) Select(message *primitive.Message, queues []*primitive.MessageQueue, last string) *primitive.MessageQueue {
	if message.Queue == nil {
		return c.otherwise.Select(message, queues, last)
	}
	for _, queue := range queues {
		if queue.QueueId == message.Queue.QueueId {
			return queue
		}
	}
	return nil
}

func (p *producers) of(parameters url.Values) (rocketmq.Producer, error) {
	group := parameters.Get("group")
	if started, ok := p.started[group]; ok {
		return started, nil
	}
	instance := group
	if parameters.Has("instance") {
		instance = parameters.Get("instance")
	}
	options := []producer.Option{
		producer.WithNameServer([]string{p.nameServer}), producer.WithGroupName(group),
		producer.WithInstanceName(instance), producer.WithRetry(0),
		producer.WithQueueSelector(chosen{producer.NewRoundRobinQueueSelector()})}
	if parameters.Get("compression") == "none" {
		options = append(options, producer.WithCompressMsgBodyOverHowmuch(math.MaxInt32))
	}
	if keys, signed := credentials(); signed {
		options = append(options, producer.WithCredentials(keys))
	}
	created, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	p.started[group] = created
	return created, created.Start()
}

// credentials are those with which all clients of this process sign, from its environment.
func credentials() (primitive.Credentials, bool) {
	key, signed := os.LookupEnv("INTEROP_ACCESS_KEY")
	return primitive.Credentials{AccessKey: key, SecretKey: os.Getenv("INTEROP_SECRET_KEY")}, signed
}

func messages(parameters url.Values) ([]*primitive.Message, error) {
	var all []*primitive.Message
	for _, text := range parameters["body"] {
		body, err := hex.DecodeString(text)
		if err != nil {
			return nil, err
		}
		message := primitive.NewMessage(parameters.Get("topic"), body)
		if parameters.Has("tags") {
			message.WithTag(parameters.Get("tags"))
		}
		if parameters.Has("keys") {
			message.WithKeys(strings.Split(parameters.Get("keys"), " "))
		}
		flag, _ := strconv.Atoi(parameters.Get("flag"))
		message.Flag = int32(flag)
		if level, err := strconv.Atoi(parameters.Get("delayLevel")); err == nil {
			message.WithDelayTimeLevel(level)
		}
		if queue, err := strconv.Atoi(parameters.Get("queue")); err == nil {
			message.Queue = &primitive.MessageQueue{Topic: message.Topic, QueueId: queue}
		}
		for name, values := range parameters {
			if property, ok := strings.CutPrefix(name, "property."); ok {
				message.WithProperty(property, values[0])
			}
		}
		all = append(all, message)
	}
	return all, nil
}

func (p *producers) send(parameters url.Values) error {
	sender, err := p.of(parameters)
	if err != nil {
		return err
	}
	all, err := messages(parameters)
	if err != nil {
		return err
	}
	switch parameters.Get("how") {
	case "batch":
		return sent(sender.SendSync(context.Background(), all...))
	case "async":
		return sendAsync(sender, all)
	case "oneway":
		for _, message := range all {
			if err := sender.SendOneWay(context.Background(), message); err != nil {
				return err
			}
		}
		return nil
	}
	for _, message := range all {
		if err := sent(sender.SendSync(context.Background(), message)); err != nil {
			return err
		}
	}
	return nil
}

func sendAsync(sender rocketmq.Producer, all []*primitive.Message) error {
	var answers sync.WaitGroup
	for _, message := range all {
		answers.Add(1)
		err := sender.SendAsync(context.Background(), func(_ context.Context, result *primitive.SendResult, err error) {
			defer answers.Done()
			if failed := sent(result, err); failed != nil {
				emit(event{"event": "refused", "message": failed.Error()})
			}
		}, message)
		if err != nil {
			return err
		}
	}
	answers.Wait()
	return nil
}

func sent(result *primitive.SendResult, err error) error {
	if err != nil {
		return err
	}
	if result.Status != primitive.SendOK {
		return fmt.Errorf("status %d", result.Status)
	}
	emit(event{"event": "sent", "status": "SEND_OK", "msgId": result.MsgID, "offsetMsgId": result.OffsetMsgID,
		"topic": result.MessageQueue.Topic, "broker": result.MessageQueue.BrokerName,
		"queueId": result.MessageQueue.QueueId, "queueOffset": result.QueueOffset})
	return nil
}

func (p *producers) route(parameters url.Values) error {
	asker, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver([]string{p.nameServer})))
	if err != nil {
		return err
	}
	queues, err := asker.FetchPublishMessageQueues(context.Background(), parameters.Get("topic"))
	for _, queue := range queues {
		emit(event{"event": "queue", "topic": queue.Topic, "broker": queue.BrokerName, "queueId": queue.QueueId})
	}
	return err
}
