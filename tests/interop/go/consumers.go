package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// consumers: push consumers, each known by a name, which is also its instance name, and a puller for each pull.
type consumers struct {
	nameServer string
	started    map[string]rocketmq.PushConsumer
	allocated  map[string][]*primitive.MessageQueue
	mutex      sync.Mutex
	pulls      atomic.Int64
	telling    sync.WaitGroup
}

const counted = 300 * time.Millisecond

func newConsumers(nameServer string) *consumers {
	return &consumers{nameServer: nameServer, started: map[string]rocketmq.PushConsumer{},
		allocated: map[string][]*primitive.MessageQueue{}}
}

func (c *consumers) register(operations map[string]operation) {
	operations["consume"] = c.consume
	operations["awaitQueues"] = c.awaitQueues
	operations["pull"] = c.pull
	operations["stop"] = func(parameters url.Values) error {
		stopping := c.started[parameters.Get("name")]
		delete(c.started, parameters.Get("name"))
		c.telling.Wait()
		time.Sleep(counted) // the client counts a message after its handler returned, and does not show when it has
		return stopping.Shutdown()
	}
}

func options(parameters url.Values) ([]consumer.Option, error) {
	from := consumer.ConsumeFromFirstOffset
	switch parameters.Get("from") {
	case "LAST_OFFSET":
		from = consumer.ConsumeFromLastOffset
	case "TIMESTAMP":
		from = consumer.ConsumeFromTimestamp
	}
	model := consumer.Clustering
	if parameters.Get("model") == "BROADCASTING" {
		model = consumer.BroadCasting
	}
	chosen := []consumer.Option{
		consumer.WithGroupName(parameters.Get("group")), consumer.WithInstance(parameters.Get("name")),
		consumer.WithConsumeFromWhere(from), consumer.WithConsumerModel(model),
		consumer.WithConsumerOrder(parameters.Has("orderly")), consumer.WithRebalanceLockInterval(time.Second)}
	if parameters.Has("timestamp") {
		chosen = append(chosen, consumer.WithConsumeTimestamp(parameters.Get("timestamp")))
	}
	if times, err := strconv.Atoi(parameters.Get("maxReconsumeTimes")); err == nil {
		chosen = append(chosen, consumer.WithMaxReconsumeTimes(int32(times)))
	}
	return chosen, nil
}

func selector(parameters url.Values) consumer.MessageSelector {
	if !parameters.Has("tags") {
		return consumer.MessageSelector{}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: parameters.Get("tags")}
}

func (c *consumers) consume(parameters url.Values) error {
	name := parameters.Get("name")
	chosen, err := options(parameters)
	if err != nil {
		return err
	}
	chosen = append(chosen, consumer.WithNameServer([]string{c.nameServer}), consumer.WithStrategy(c.allocate(name)))
	if keys, signed := credentials(); signed {
		chosen = append(chosen, consumer.WithCredentials(keys))
	}
	created, err := rocketmq.NewPushConsumer(chosen...)
	if err != nil {
		return err
	}
	// Reports each message, then fails it as often as its property `failures` says.
	handle := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		c.telling.Add(1)
		defer c.telling.Done()
		result := consumer.ConsumeSuccess
		for _, message := range messages {
			event := describe(message)
			event["consumer"] = name
			event["at"] = time.Now().UnixMilli()
			emit(event)
			if failures, err := strconv.Atoi(message.GetProperty("failures")); err == nil && int(message.ReconsumeTimes) < failures {
				result = consumer.ConsumeRetryLater
			}
		}
		return result, nil
	}
	if err := created.Subscribe(parameters.Get("topic"), selector(parameters), handle); err != nil {
		return err
	}
	c.started[name] = created
	return created.Start()
}

// allocate records what the client's own strategy returns: only here its queues can be seen.
func (c *consumers) allocate(name string) consumer.AllocateStrategy {
	return func(group, client string, queues []*primitive.MessageQueue, members []string) []*primitive.MessageQueue {
		given := consumer.AllocateByAveragely(group, client, queues, members)
		c.mutex.Lock()
		defer c.mutex.Unlock()
		if len(queues) > 0 {
			c.allocated[name+" "+queues[0].Topic] = given
		}
		return given
	}
}

func (c *consumers) held(key string) []*primitive.MessageQueue {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.allocated[key]
}

func (c *consumers) awaitQueues(parameters url.Values) error {
	key := parameters.Get("name") + " " + parameters.Get("topic")
	count, err := strconv.Atoi(parameters.Get("count"))
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(60 * time.Second); len(c.held(key)) != count; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("holds %v", c.held(key))
		}
	}
	for _, queue := range c.held(key) {
		emit(event{"event": "queue", "topic": queue.Topic, "broker": queue.BrokerName, "queueId": queue.QueueId})
	}
	return nil
}

var states = map[primitive.PullStatus]string{primitive.PullFound: "FOUND", primitive.PullNoNewMsg: "NO_NEW_MSG",
	primitive.PullNoMsgMatched: "NO_MATCHED_MSG", primitive.PullOffsetIllegal: "OFFSET_ILLEGAL"}

func (c *consumers) pull(parameters url.Values) error {
	group := fmt.Sprintf("interop-go-puller-%d", c.pulls.Add(1))
	puller, err := rocketmq.NewPullConsumer(consumer.WithGroupName(group), consumer.WithInstance(group),
		consumer.WithNameServer([]string{c.nameServer}))
	if err != nil {
		return err
	}
	topic := parameters.Get("topic")
	if err := puller.Subscribe(topic, selector(parameters)); err != nil {
		return err
	}
	if err := puller.Start(); err != nil {
		return err
	}
	defer puller.Shutdown()
	queue, _ := strconv.Atoi(parameters.Get("queue"))
	offset, _ := strconv.ParseInt(parameters.Get("offset"), 10, 64)
	count := 32
	if parameters.Has("count") {
		count, _ = strconv.Atoi(parameters.Get("count"))
	}
	result, err := puller.PullFrom(context.Background(),
		&primitive.MessageQueue{Topic: topic, BrokerName: "broker-a", QueueId: queue}, offset, count)
	if err != nil {
		return err
	}
	for _, message := range result.GetMessageExts() {
		emit(describe(message))
	}
	emit(event{"event": "pulled", "status": states[result.Status], "next": result.NextBeginOffset,
		"min": result.MinOffset, "max": result.MaxOffset})
	return nil
}

func describe(message *primitive.MessageExt) event {
	return event{"event": "message", "topic": message.Topic, "queueId": message.Queue.QueueId,
		"queueOffset": message.QueueOffset, "msgId": message.MsgId, "offsetMsgId": message.OffsetMsgId,
		"commitLogOffset": message.CommitLogOffset, "storeSize": message.StoreSize, "tags": message.GetTags(),
		"keys": message.GetKeys(), "flag": message.Flag, "reconsumeTimes": message.ReconsumeTimes, "bornTimestamp": message.BornTimestamp,
		"storeTimestamp": message.StoreTimestamp, "properties": message.GetProperties(),
		"body": hex.EncodeToString(message.Body)}
}
