package firearrowtest

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	sendMessage = 10
	abandon     = "FIREARROWTEST_ABANDON"
)

func TestMain(m *testing.M) {
	if os.Getenv(abandon) != "" {
		broker, err := New()
		if err != nil {
			panic(err)
		}
		fmt.Println(broker.Address)
		time.Sleep(time.Minute)
	}
	os.Exit(m.Run())
}

func send(t *testing.T, broker *Broker, topic string, queue, flags int, properties string, body []byte) {
	t.Helper()
	if err := trySend(broker, topic, queue, flags, properties, body); err != nil {
		t.Fatal(err)
	}
}

func trySend(broker *Broker, topic string, queue, flags int, properties string, body []byte) error {
	answer, err := ask(broker.Address, sendMessage, map[string]string{
		"producerGroup": "go-tests", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
		"queueId": strconv.Itoa(queue), "sysFlag": strconv.Itoa(flags), "flag": "0", "reconsumeTimes": "0",
		"bornTimestamp": strconv.FormatInt(time.Now().UnixMilli(), 10), "properties": properties,
	}, body...)
	if err != nil {
		return err
	}
	return answer.err("a send to " + topic)
}

func listens(address string) bool {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return false
	}
	connection.Close()
	return true
}

// temporary makes the folders of this test's brokers visible.
func temporary(t *testing.T) func() []string {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	return func() []string {
		found, err := filepath.Glob(filepath.Join(folder, "firearrow-*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
}

func TestABrokerStartsAndStops(t *testing.T) {
	stores := temporary(t)
	var addresses []string
	for round := 0; round < 5; round++ {
		t.Run("broker", func(t *testing.T) {
			broker := Start(t)
			addresses = append(addresses, broker.Address)
			if !listens(broker.Address) || !listens(broker.NameServer) || !slices.Equal(stores(), []string{filepath.Dir(broker.Store)}) {
				t.Errorf("%+v, stores %v", broker, stores())
			}
		})
	}
	if listens(addresses[0]) || len(stores()) != 0 {
		t.Errorf("%s still listens, or %v is left", addresses[0], stores())
	}
}

func TestASecondStopDoesNothing(t *testing.T) {
	broker := Start(t)
	for range [2]int{} {
		if err := broker.Stop(); err != nil {
			t.Error(err)
		}
	}
}

func TestMessagesComeInTheirOrder(t *testing.T) {
	broker := Start(t, WithTopic("orders", 4), WithSetting("autoCreateTopicEnable", "false"))
	for number := 0; number < 100; number++ {
		properties := fmt.Sprintf("TAGS\x01new\x02KEYS\x01order-%d o%d\x02", number, number)
		send(t, broker, "orders", number%3, 0, properties, []byte(strconv.Itoa(number)))
	}
	for range [2]int{} {
		messages := broker.AwaitMessages(t, "orders", 100, time.Second)
		for number, message := range messages {
			text := strconv.Itoa(number)
			if string(message.Body) != text || message.Topic != "orders" || message.Tags != "new" ||
				!slices.Equal(message.Keys, []string{"order-" + text, "o" + text}) ||
				message.QueueID != number%3 || message.QueueOffset != int64(number/3) {
				t.Fatalf("message %d is %+v", number, message)
			}
		}
		if len(messages) != 100 {
			t.Fatalf("%d messages", len(messages))
		}
	}
}

func TestACompressedBodyIsExpanded(t *testing.T) {
	broker := Start(t)
	broker.Topic(t, "large", 1)
	body := bytes.Repeat([]byte("0123456789"), 10_000)
	var packed bytes.Buffer
	writer := zlib.NewWriter(&packed)
	writer.Write(body)
	writer.Close()
	send(t, broker, "large", 0, compressed, "", packed.Bytes())
	if found := broker.AwaitMessages(t, "large", 1, time.Second); !bytes.Equal(found[0].Body, body) {
		t.Errorf("a body of %d bytes", len(found[0].Body))
	}
	send(t, broker, "large", 0, compressed|1<<8, "", []byte("not zlib"))
	if _, err := broker.Messages("large"); err == nil || !strings.Contains(err.Error(), "only zlib can be read") {
		t.Error(err)
	}
}

func TestALongTopicName(t *testing.T) {
	broker := Start(t)
	topic := strings.Repeat("n", 127)
	broker.Topic(t, topic, 1)
	send(t, broker, topic, 0, 0, "", []byte("body"))
	if found := broker.AwaitMessages(t, topic, 1, time.Second); found[0].Topic != topic {
		t.Error(found)
	}
}

func TestMessagesThatComeLaterAreAwaited(t *testing.T) {
	broker := Start(t)
	sent := make(chan error)
	go func() {
		time.Sleep(300 * time.Millisecond)
		sent <- trySend(broker, "new-topic", 0, 0, "", []byte("late"))
	}()
	if found := broker.AwaitMessages(t, "new-topic", 1, 10*time.Second); string(found[0].Body) != "late" {
		t.Error(found)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// recorded notes the failure of a test that must fail.
type recorded struct {
	testing.TB
	text string
}

func (r *recorded) Fatalf(format string, values ...any) {
	r.text = fmt.Sprintf(format, values...)
	panic(r)
}

func TestTooFewMessagesFailWithTheirNumber(t *testing.T) {
	broker := Start(t, WithTopic("quiet", 2))
	failing := &recorded{TB: t}
	defer func() {
		if recover() != failing || failing.text != "topic quiet has 0 messages after 100ms, not 2" {
			t.Errorf("it failed with %q", failing.text)
		}
	}()
	broker.AwaitMessages(failing, "quiet", 2, 100*time.Millisecond)
}

func TestErrorsSayWhatToDo(t *testing.T) {
	command := os.Getenv("FIREARROW_COMMAND")
	if command == "" {
		command = "firearrow"
	}
	for _, each := range []struct {
		name    string
		command string
		path    string
		option  Option
		text    string
	}{
		{"no such program", "/no/such/firearrow", os.Getenv("PATH"), nil, "set FIREARROW_COMMAND to the path of the command firearrow"},
		{"not on the path", "", t.TempDir(), nil, "run `pip install firearrow`"},
		{"refused topic", command, os.Getenv("PATH"), WithTopic("a b", 1), "topic a b: the broker answered 29 "},
		{"refused setting", command, os.Getenv("PATH"), WithSetting("brokerRole", "SLAVE"), "the broker did not start: it ended"},
	} {
		t.Run(each.name, func(t *testing.T) {
			stores := temporary(t)
			t.Setenv("FIREARROW_COMMAND", each.command)
			t.Setenv("PATH", each.path)
			given := []Option{}
			if each.option != nil {
				given = append(given, each.option)
			}
			if _, err := New(given...); err == nil || !strings.Contains(err.Error(), each.text) {
				t.Error(err)
			}
			if len(stores()) != 0 {
				t.Errorf("%v is left", stores())
			}
		})
	}
}

func TestTheBrokerOfKilledTestsEnds(t *testing.T) {
	stores := temporary(t)
	tests := exec.Command(os.Args[0])
	tests.Env = append(os.Environ(), abandon+"=1")
	output, err := tests.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tests.Start(); err != nil {
		t.Fatal(err)
	}
	var address string
	if _, err := fmt.Fscanln(output, &address); err != nil || !listens(address) {
		t.Fatal(address, err)
	}
	tests.Process.Kill()
	tests.Wait()
	for deadline := time.Now().Add(20 * time.Second); listens(address) || len(stores()) > 0; time.Sleep(pollEvery) {
		if time.Now().After(deadline) {
			t.Fatalf("%s still listens, or %v is left", address, stores())
		}
	}
}
