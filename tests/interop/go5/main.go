// Apache's client of 5.x for Go: the scenarios of `java/grpc5/Scenarios.java`. Each argument after the endpoints is
// `scenario=topic`, whose group is the topic and `-g`. Prints `passed scenario` or `failed scenario: why`. The
// variables INTEROP_ACCESS_KEY, INTEROP_SECRET_KEY and INTEROP_TLS choose how it connects.
//
// The push consumers end with the process: their own end waits for the last long poll.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
)

const wait = 40 * time.Second
const requestTimeout = 10 * time.Second

var background = context.Background()

func main() {
	rmq.EnableSsl = os.Getenv("INTEROP_TLS") != ""
	os.Setenv("mq.consoleAppender.enabled", "true") // on standard output, among what the scenarios print
	os.Setenv("rocketmq.client.logLevel", "warn")
	rmq.ResetLogger()
	var running sync.WaitGroup
	for _, argument := range os.Args[2:] {
		name, topic, _ := strings.Cut(argument, "=")
		running.Add(1)
		go func() {
			defer running.Done()
			if err := run(name, topic); err != nil {
				fmt.Printf("failed %s: %s\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
				fmt.Fprintln(os.Stderr, name, err)
			} else {
				fmt.Println("passed " + name)
			}
		}()
	}
	running.Wait()
}

// A scenario ends at its first failure.
type failure struct{ error }

func run(name, topic string) (err error) {
	defer func() {
		if found := recover(); found != nil {
			failed, is := found.(failure)
			if !is {
				panic(found)
			}
			err = failed.error
		}
	}()
	scenario, known := scenarios[name]
	check(known, "no such scenario")
	scenario(topic)
	return nil
}

func check(condition bool, format string, values ...any) {
	if !condition {
		panic(failure{fmt.Errorf(format, values...)})
	}
}

func must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func until(condition func() bool, what func() string) {
	for deadline := time.Now().Add(wait); !condition(); time.Sleep(20 * time.Millisecond) {
		check(time.Now().Before(deadline), "%s", what())
	}
}

// ---- what the scenarios share ----

func config(group string) *rmq.Config {
	key, secret := os.Getenv("INTEROP_ACCESS_KEY"), os.Getenv("INTEROP_SECRET_KEY")
	if key == "" {
		key, secret = "none", "none" // the client requires them
	}
	keys := &credentials.SessionCredentials{AccessKey: key, AccessSecret: secret}
	return &rmq.Config{Endpoint: os.Args[1], ConsumerGroup: group, Credentials: keys}
}

func started(topic string, options ...rmq.ProducerOption) (rmq.Producer, error) {
	made, err := rmq.NewProducer(config(""), append(options, rmq.WithTopics(topic))...)
	must(err)
	made.SetRequestTimeout(requestTimeout)
	return made, made.Start()
}

func producer(topic string, options ...rmq.ProducerOption) rmq.Producer {
	made, err := started(topic, options...)
	must(err)
	return made
}

func checker(decide func(body string) rmq.TransactionResolution) rmq.ProducerOption {
	check := func(view *rmq.MessageView) rmq.TransactionResolution { return decide(string(view.GetBody())) }
	return rmq.WithTransactionChecker(&rmq.TransactionChecker{Check: check})
}

func message(topic, body string) *rmq.Message {
	return &rmq.Message{Topic: topic, Body: []byte(body)}
}

func send(sender rmq.Producer, sent *rmq.Message) {
	_, err := sender.Send(background, sent)
	must(err)
}

// What a push consumer has received.
type inbox struct {
	sync.Mutex
	views []*rmq.MessageView
}

func (seen *inbox) add(view *rmq.MessageView) int {
	seen.Lock()
	defer seen.Unlock()
	seen.views = append(seen.views, view)
	return len(seen.views)
}

func (seen *inbox) bodies() []string {
	seen.Lock()
	defer seen.Unlock()
	found := []string{}
	for _, view := range seen.views {
		found = append(found, string(view.GetBody()))
	}
	return found
}

func (seen *inbox) sorted() string {
	found := seen.bodies()
	slices.Sort(found)
	return strings.Join(found, " ")
}

func (seen *inbox) await(count int) {
	until(func() bool { return len(seen.bodies()) >= count }, func() string {
		return fmt.Sprintf("%d messages, but %v", count, seen.bodies())
	})
}

func push(topic string, filter *rmq.FilterExpression, consume func(*rmq.MessageView) rmq.ConsumerResult) {
	made, err := rmq.NewPushConsumer(config(topic+"-g"),
		rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: filter}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: consume}))
	must(err)
	made.SetRequestTimeout(requestTimeout)
	must(made.Start())
}

func consumed(topic string, filter *rmq.FilterExpression) *inbox {
	seen := &inbox{}
	push(topic, filter, func(view *rmq.MessageView) rmq.ConsumerResult {
		seen.add(view)
		return rmq.SUCCESS
	})
	return seen
}

func simpleConsumer(topic, group string) (rmq.SimpleConsumer, error) {
	made, err := rmq.NewSimpleConsumer(config(group),
		rmq.WithSimpleAwaitDuration(5*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL}))
	must(err)
	made.SetRequestTimeout(requestTimeout)
	return made, made.Start()
}

// Nothing found is an error for the client.
func received(consumer rmq.SimpleConsumer, count int32) []*rmq.MessageView {
	found, err := consumer.Receive(background, count, 15*time.Second)
	if status, is := rmq.AsErrRpcStatus(err); is && v2.Code(status.Code) == v2.Code_MESSAGE_NOT_FOUND {
		return nil
	}
	must(err)
	return found
}

func one(consumer rmq.SimpleConsumer) *rmq.MessageView {
	var found []*rmq.MessageView
	until(func() bool {
		found = received(consumer, 1)
		return len(found) == 1
	}, func() string { return "nothing was received" })
	return found[0]
}

func failsWith(err error, part string) {
	check(err != nil, "it was taken")
	check(strings.Contains(err.Error(), part), "another error: %v", errors.Unwrap(err))
}
