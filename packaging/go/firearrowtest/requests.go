package firearrowtest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sort"
	"strconv"
	"testing"
	"time"
)

const (
	pullMessage          = 11
	updateAndCreateTopic = 17
	getRouteByTopic      = 105
	getTopicConfig       = 351

	success       = 0
	topicNotExist = 17
	pullNotFound  = 19

	readAndWrite     = 6
	withSubscription = 1 << 2
	frameBytesMax    = 64 << 20
	requestWithin    = 10 * time.Second
	pollEvery        = 20 * time.Millisecond
)

// command is the header of a request or a response.
type command struct {
	Code     int               `json:"code"`
	Language string            `json:"language"`
	Version  int               `json:"version"`
	Opaque   int               `json:"opaque"`
	Flag     int               `json:"flag"`
	Remark   string            `json:"remark,omitempty"`
	Fields   map[string]string `json:"extFields"`
	body     []byte
}

func (c *command) err(what string) error {
	if c.Code == success {
		return nil
	}
	return fmt.Errorf("firearrowtest: %s: the broker answered %d %s", what, c.Code, c.Remark)
}

// encode returns the frame of a request: lengths, header, body.
func (c *command) encode() ([]byte, error) {
	header, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)+len(c.body)))
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(header)))
	return append(append(frame, header...), c.body...), nil
}

// ask sends one request over a connection of its own.
func ask(address string, code int, fields map[string]string, body ...byte) (*command, error) {
	request := command{Code: code, Language: "GO", Opaque: 1, Fields: fields, body: body}
	frame, err := request.encode()
	if err != nil {
		return nil, err
	}
	connection, err := net.DialTimeout("tcp", address, requestWithin)
	if err != nil {
		return nil, fmt.Errorf("firearrowtest: the broker does not answer: %w", err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(requestWithin)); err != nil {
		return nil, err
	}
	if _, err := connection.Write(frame); err != nil {
		return nil, err
	}
	return readCommand(connection)
}

func readCommand(from io.Reader) (*command, error) {
	var lengths [2]uint32 // of the frame after this field, and of the header, whose first byte is its format
	if err := binary.Read(from, binary.BigEndian, &lengths); err != nil {
		return nil, fmt.Errorf("firearrowtest: the broker closed the connection: %w", err)
	}
	header := int(lengths[1] & 0xFFFFFF)
	if lengths[0] > frameBytesMax || int(lengths[0]) < 4+header {
		return nil, fmt.Errorf("firearrowtest: an answer of %d bytes with a header of %d cannot be read", lengths[0], header)
	}
	frame := make([]byte, lengths[0]-4)
	if _, err := io.ReadFull(from, frame); err != nil {
		return nil, err
	}
	answer := &command{body: frame[header:]}
	return answer, json.Unmarshal(frame[:header], answer)
}

// CreateTopic creates a topic; the name server knows it when this returns.
func (b *Broker) CreateTopic(name string, queues int) error {
	count := strconv.Itoa(queues)
	answer, err := ask(b.Address, updateAndCreateTopic, map[string]string{
		"topic": name, "defaultTopic": "TBW102", "readQueueNums": count, "writeQueueNums": count,
		"perm": strconv.Itoa(readAndWrite), "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
	})
	if err != nil {
		return err
	}
	if err := answer.err("topic " + name); err != nil {
		return err
	}
	for deadline := time.Now().Add(requestWithin); ; time.Sleep(pollEvery) {
		route, err := ask(b.NameServer, getRouteByTopic, map[string]string{"topic": name})
		if err != nil {
			return err
		}
		if err := route.err("topic " + name); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// Topic is CreateTopic for a test, which it ends if the broker refuses.
func (b *Broker) Topic(t testing.TB, name string, queues int) {
	t.Helper()
	if err := b.CreateTopic(name, queues); err != nil {
		t.Fatal(err)
	}
}

// Messages returns all messages of a topic in the order in which they were stored; none if there is no such topic.
func (b *Broker) Messages(topic string) ([]Message, error) {
	answer, err := ask(b.Address, getTopicConfig, map[string]string{"topic": topic})
	if err != nil {
		return nil, err
	}
	if answer.Code == topicNotExist {
		return nil, nil
	}
	if err := answer.err("topic " + topic); err != nil {
		return nil, err
	}
	var config struct {
		Queues int `json:"readQueueNums"`
	}
	if err := json.Unmarshal(answer.body, &config); err != nil {
		return nil, err
	}
	var found []Message
	for queue := 0; queue < config.Queues; queue++ {
		messages, err := b.readQueue(topic, queue)
		if err != nil {
			return nil, err
		}
		found = append(found, messages...)
	}
	sort.Slice(found, func(i, j int) bool { return found[i].physicalOffset < found[j].physicalOffset })
	return found, nil
}

func (b *Broker) readQueue(topic string, queue int) ([]Message, error) {
	var found []Message
	for offset := "0"; ; {
		answer, err := ask(b.Address, pullMessage, map[string]string{
			"consumerGroup": "firearrowtest", "topic": topic, "queueId": strconv.Itoa(queue), "queueOffset": offset,
			"maxMsgNums": "32", "sysFlag": strconv.Itoa(withSubscription), "commitOffset": "0",
			"suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
		})
		if err != nil {
			return nil, err
		}
		if answer.Code == pullNotFound {
			return found, nil
		}
		if err := answer.err(fmt.Sprintf("queue %d of topic %s", queue, topic)); err != nil {
			return nil, err
		}
		messages, err := decodeAll(answer.body)
		if err != nil {
			return nil, err
		}
		found = append(found, messages...)
		next, hasNext := answer.Fields["nextBeginOffset"]
		if !hasNext {
			return nil, errors.New("firearrowtest: an answer to a pull has no nextBeginOffset")
		}
		offset = next
	}
}

// AwaitMessages waits until the topic has at least count messages and returns all of them, in the order in which they
// were stored. Nothing is taken away from consumers. It ends the test if there are fewer after the timeout.
func (b *Broker) AwaitMessages(t testing.TB, topic string, count int, timeout time.Duration) []Message {
	t.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(pollEvery) {
		found, err := b.Messages(topic)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) >= count {
			return found
		}
		if time.Now().After(deadline) {
			t.Fatalf("topic %s has %d messages after %s, not %d", topic, len(found), timeout, count)
		}
	}
}
