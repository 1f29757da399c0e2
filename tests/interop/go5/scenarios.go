package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

var scenarios = map[string]func(topic string){
	"normal":      normal,
	"async":       async,
	"simple":      simple,
	"invisible":   invisible,
	"fifo":        fifo,
	"delay":       delay,
	"transaction": transaction,
	"orphan":      orphan,
	"retry":       retry,
	"dlq":         func(topic string) { deadLetter(topic, message(topic, "dead")) },
	"dlq-fifo":    deadLetterInOrder,
	"tag":         func(topic string) { filtered(topic, rmq.NewFilterExpression("a || c"), "a0 c2") },
	"sql":         func(topic string) { filtered(topic, rmq.NewFilterExpressionWithType("n > 0", rmq.SQL92), "b1 c2") },
	"large":       large,
	"wrong-type":  wrongType,
	"mixed":       mixed,
	"unknown":     func(topic string) { refused(topic, "TOPIC_NOT_FOUND") },
	"refused":     func(topic string) { refused(topic, "UNAUTHORIZED") },
}

func normal(topic string) {
	seen, sender := consumed(topic, rmq.SUB_ALL), producer(topic)
	for n := range 20 {
		sent := message(topic, fmt.Sprint("body", n))
		sent.SetTag("tag")
		sent.SetKeys(fmt.Sprint("k", n), "all")
		sent.AddProperty("n", fmt.Sprint(n))
		send(sender, sent)
	}
	seen.await(20)
	at := slices.Index(seen.bodies(), "body7")
	view := seen.views[at]
	check(*view.GetTag() == "tag" && slices.Equal(view.GetKeys(), []string{"k7", "all"}), "tag and keys")
	check(len(view.GetProperties()) == 1 && view.GetProperties()["n"] == "7", "%v", view.GetProperties())
	check(view.GetDeliveryAttempt() == 1, "attempt %d", view.GetDeliveryAttempt())
	must(sender.GracefulStop())
}

func async(topic string) {
	seen, sender := consumed(topic, rmq.SUB_ALL), producer(topic)
	var failed atomic.Pointer[error]
	for n := range 300 {
		sender.SendAsync(background, message(topic, fmt.Sprint(n)), func(_ context.Context, _ []*rmq.SendReceipt, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	seen.await(300)
	check(failed.Load() == nil, "a send failed")
	check(len(slices.Compact(strings.Fields(seen.sorted()))) == 300, "some came twice")
}

func simple(topic string) {
	consumer, err := simpleConsumer(topic, topic+"-g")
	must(err)
	sender := producer(topic)
	for n := range 5 {
		send(sender, message(topic, fmt.Sprint(n)))
	}
	seen := map[string]bool{}
	until(func() bool {
		for _, view := range received(consumer, 16) {
			seen[string(view.GetBody())] = true
			must(consumer.Ack(background, view))
		}
		return len(seen) == 5
	}, func() string { return fmt.Sprint("5 messages, but ", seen) })
	must(consumer.GracefulStop())
}

func invisible(topic string) {
	consumer, err := simpleConsumer(topic, topic+"-g")
	must(err)
	send(producer(topic), message(topic, "again"))
	first := one(consumer)
	must(consumer.ChangeInvisibleDuration(first, 500*time.Millisecond))
	second := one(consumer)
	check(second.GetMessageId() == first.GetMessageId(), "another message")
	check(second.GetDeliveryAttempt() == 2, "attempt %d", second.GetDeliveryAttempt())
	must(consumer.Ack(background, second))
}

func grouped(topic, body string) *rmq.Message {
	sent := message(topic, body)
	sent.SetMessageGroup("one")
	return sent
}

// The client goes on with the next message while it retries one, so none fails here.
func fifo(topic string) {
	seen, sender := consumed(topic, rmq.SUB_ALL), producer(topic)
	for n := range 10 {
		send(sender, grouped(topic, fmt.Sprint(n)))
	}
	seen.await(10)
	check(strings.Join(seen.bodies(), "") == "0123456789", "%v", seen.bodies())
}

func delay(topic string) {
	seen, sender := consumed(topic, rmq.SUB_ALL), producer(topic)
	due := time.Now().Add(3 * time.Second)
	sent := message(topic, "later")
	sent.SetDelayTimestamp(due)
	send(sender, sent)
	seen.await(1)
	check(time.Until(due) < 200*time.Millisecond, "too early by %s", time.Until(due))
}

func transaction(topic string) {
	seen := consumed(topic, rmq.SUB_ALL)
	sender := producer(topic, checker(func(string) rmq.TransactionResolution { return rmq.UNKNOWN }))
	for n := range 4 {
		begun := sender.BeginTransaction()
		_, err := sender.SendWithTransaction(background, message(topic, fmt.Sprint(n)), begun)
		must(err)
		if n%2 == 0 {
			must(begun.Commit())
		} else {
			must(begun.RollBack())
		}
	}
	seen.await(2)
	time.Sleep(time.Second)
	check(seen.sorted() == "0 2", "%s", seen.sorted())
}

func orphan(topic string) {
	seen := consumed(topic, rmq.SUB_ALL)
	sender := producer(topic, checker(func(body string) rmq.TransactionResolution {
		if body == "yes" {
			return rmq.COMMIT
		}
		return rmq.ROLLBACK
	}))
	for _, body := range []string{"no", "yes"} {
		_, err := sender.SendWithTransaction(background, message(topic, body), sender.BeginTransaction())
		must(err)
	}
	seen.await(1)
	check(seen.sorted() == "yes", "%s", seen.sorted())
}

func retry(topic string) {
	seen := &inbox{}
	push(topic, rmq.SUB_ALL, func(view *rmq.MessageView) rmq.ConsumerResult {
		if seen.add(view) < 2 {
			return rmq.FAILURE
		}
		return rmq.SUCCESS
	})
	send(producer(topic), message(topic, "twice"))
	seen.await(2)
	for n, view := range seen.views {
		check(view.GetDeliveryAttempt() == int32(n+1), "attempt %d", view.GetDeliveryAttempt())
	}
}

// The group of the topic's name reads the dead letters.
func deadLetter(topic string, sent *rmq.Message) {
	push(topic, rmq.SUB_ALL, func(*rmq.MessageView) rmq.ConsumerResult { return rmq.FAILURE })
	send(producer(topic), sent)
	var reader rmq.SimpleConsumer
	until(func() bool {
		var err error
		reader, err = simpleConsumer("%DLQ%"+topic+"-g", topic)
		return err == nil
	}, func() string { return "no dead letter" })
	view := one(reader)
	check(string(view.GetBody()) == "dead", "another body")
	must(reader.Ack(background, view))
}

func deadLetterInOrder(topic string) {
	deadLetter(topic, grouped(topic, "dead"))
}

func filtered(topic string, filter *rmq.FilterExpression, expected string) {
	seen, sender := consumed(topic, filter), producer(topic)
	for n, tag := range []string{"a", "b", "c"} {
		sent := message(topic, fmt.Sprint(tag, n))
		sent.SetTag(tag)
		sent.AddProperty("n", fmt.Sprint(n))
		send(sender, sent)
	}
	seen.await(2)
	check(seen.sorted() == expected, "%s", seen.sorted())
}

// The client itself takes no answer above 4 MiB.
func large(topic string) {
	consumer, err := simpleConsumer(topic, topic+"-g")
	must(err)
	body := make([]byte, 3<<20)
	_, err = rand.Read(body)
	must(err)
	send(producer(topic), &rmq.Message{Topic: topic, Body: body})
	view := one(consumer)
	check(bytes.Equal(view.GetBody(), body), "another body")
	must(consumer.Ack(background, view))
}

func wrongType(topic string) {
	_, err := producer(topic).Send(background, message(topic, "normal"))
	failsWith(err, "message type not match")
}

// Remoting clients have sent three messages of the group, which has five of its own.
func mixed(topic string) {
	seen, sender := consumed(topic, rmq.SUB_ALL), producer(topic)
	for n := range 5 {
		sent := message(topic, fmt.Sprint("grpc", n))
		sent.SetTag("tag")
		sent.SetKeys(fmt.Sprint("k", n))
		sent.AddProperty("n", fmt.Sprint(n))
		send(sender, sent)
	}
	seen.await(8)
	time.Sleep(500 * time.Millisecond)
	check(seen.sorted() == "grpc0 grpc1 grpc2 grpc3 grpc4 remoting2 remoting3 remoting4", "%s", seen.sorted())
}

// Its producer does not start.
func refused(topic, code string) {
	_, err := started(topic)
	failsWith(err, code)
}
