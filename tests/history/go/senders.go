package main

import (
	"context"
	"fmt"
	"hash/crc32"
	"math/rand"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	pause      = 50 * time.Millisecond
	largeBytes = 20_000
	manyBytes  = 900
)

// senders: two, each with one message in flight. An id is `sender.number.try`; what failed is sent again under a new
// one. `one` sends each message once, to the queue it chooses; `repeated` leaves both to the client.
type senders struct {
	name     string
	seed     int64
	pace     time.Duration
	once     rocketmq.Producer
	often    rocketmq.Producer
	numbers  [2]int
	resting  atomic.Bool
	sending  sync.WaitGroup
	isLoaded bool
}

func newSenders(name, nameServer string, seed int64, pace time.Duration) *senders {
	return &senders{name: name, seed: seed, pace: pace,
		once:  newProducer(name+"-once", nameServer, 0, producer.NewManualQueueSelector()),
		often: newProducer(name+"-often", nameServer, 2, producer.NewRoundRobinQueueSelector())}
}

func newProducer(group, nameServer string, retries int, selector producer.QueueSelector) rocketmq.Producer {
	created, err := rocketmq.NewProducer(producer.WithNameServer([]string{nameServer}), producer.WithGroupName(group),
		producer.WithInstanceName(group), producer.WithRetry(retries), producer.WithQueueSelector(selector))
	must(err)
	return created
}

func (s *senders) load() {
	if !s.isLoaded {
		must(s.once.Start())
		must(s.often.Start())
		s.isLoaded = true
	}
	s.resting.Store(false)
	s.sending.Add(2)
	go s.run(0, s.name+"-one", s.once, 1)
	go s.run(1, s.name+"-repeated", s.often, 3)
}

func (s *senders) rest() {
	s.resting.Store(true)
	s.sending.Wait()
}

func (s *senders) run(which int, sender string, through rocketmq.Producer, copies int) {
	defer s.sending.Done()
	draw := rand.New(rand.NewSource(s.seed + int64(which)))
	for !s.resting.Load() {
		s.numbers[which]++
		for try := 0; ; try++ {
			name := fmt.Sprintf("%s.%d.%d", sender, s.numbers[which], try)
			message := primitive.NewMessage(plain, bodyOf(name, draw))
			if copies == 1 {
				message.Queue = &primitive.MessageQueue{Topic: plain, BrokerName: brokerName, QueueId: s.numbers[which] % queues}
			}
			if send(name, through, message, copies) || s.resting.Load() {
				break
			}
			time.Sleep(pause)
		}
		time.Sleep(time.Duration(draw.Float64() * float64(s.pace)))
	}
}

func send(name string, through rocketmq.Producer, message *primitive.Message, copies int) bool {
	emit("send", event{"id": name, "topic": plain, "crc": crc32.ChecksumIEEE(message.Body), "size": len(message.Body),
		"copies": copies})
	result, err := through.SendSync(context.Background(), message)
	if err != nil {
		emit("failed", event{"id": name, "why": err.Error()})
		return false
	}
	status := "SEND_OK"
	if result.Status != primitive.SendOK {
		status = fmt.Sprintf("status %d", result.Status)
	}
	emit("sent", event{"id": name, "status": status, "queue": result.MessageQueue.QueueId, "offset": result.QueueOffset})
	return true
}

// bodyOf: `name|` and filler; one in fifty is large enough to be compressed.
func bodyOf(name string, draw *rand.Rand) []byte {
	size := draw.Intn(manyBytes)
	if draw.Float64() < 0.02 {
		size = largeBytes
	}
	return []byte(name + "|" + strings.Repeat(fmt.Sprintf("%08x", draw.Uint32()), size/8))
}
