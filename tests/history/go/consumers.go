package main

import (
	"bytes"
	"context"
	"hash/crc32"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const (
	brokerName = "broker-a"
	failsEvery = 40
)

// consumers: one that takes messages concurrently and fails some once, one in order, and a member of the shared group.
// The official client sends heartbeats only every 30 s, so after a kill it gets few messages until it rejoins.
type consumers struct {
	name       string
	nameServer string
	running    []rocketmq.PushConsumer
}

func newConsumers(name, nameServer string) *consumers {
	return &consumers{name: name, nameServer: nameServer}
}

func (c *consumers) start() {
	c.running = []rocketmq.PushConsumer{
		c.begin(c.name+"-concurrent", "concurrent", false, true),
		c.begin(c.name+"-orderly", "orderly", false, false),
		c.begin("shared", "concurrent", true, false),
	}
}

func (c *consumers) close() {
	for _, running := range c.running {
		must(running.Shutdown())
	}
}

func (c *consumers) begin(group, how string, shared, fails bool) rocketmq.PushConsumer {
	emit("joined", event{"group": group, "topic": plain, "how": how, "shared": shared})
	created, err := rocketmq.NewPushConsumer(consumer.WithGroupName(group), consumer.WithInstance(c.name+"-"+group),
		consumer.WithNameServer([]string{c.nameServer}), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(how == "orderly"), consumer.WithRebalanceLockInterval(time.Second))
	must(err)
	handle := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		result := consumer.ConsumeSuccess
		for _, message := range messages {
			again := fails && message.ReconsumeTimes == 0 && message.QueueOffset%failsEvery == 0
			tellGot(group, message, !again)
			if again {
				result = consumer.ConsumeRetryLater
			}
		}
		return result, nil
	}
	must(created.Subscribe(plain, consumer.MessageSelector{}, handle))
	must(created.Start())
	return created
}

func tellGot(group string, message *primitive.MessageExt, ok bool) {
	name, _, _ := bytes.Cut(message.Body, []byte("|"))
	emit("got", event{"group": group, "topic": message.Topic, "queue": message.Queue.QueueId, "offset": message.QueueOffset,
		"id": string(name), "crc": crc32.ChecksumIEEE(message.Body), "size": len(message.Body),
		"times": message.ReconsumeTimes, "ok": ok, "at": time.Now().UnixNano()})
}
