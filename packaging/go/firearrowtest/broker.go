// Package firearrowtest starts a real message broker that speaks Apache RocketMQ for the tests of your service, on free
// ports and with a temporary store.
//
//	broker := firearrowtest.Start(t, firearrowtest.WithTopic("orders", 4))
//	service := NewService(broker.NameServer)
//	...
//	messages := broker.AwaitMessages(t, "orders", 3, 10*time.Second)
//
// It runs the command firearrow, which it looks up on PATH unless the environment variable FIREARROW_COMMAND names it.
package firearrowtest

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	logCharsShown = 2000
	readyWithin   = 30 * time.Second
	stopWithin    = 10 * time.Second
)

var ready = regexp.MustCompile(`^firearrow ready: broker (\S+:\d+), name server (\S+:\d+), store `)

// A shell runs the broker and waits for the end of its input. So the broker ends and its folder disappears also if the
// tests are killed, or end by a panic without their cleanup.
//
//go:embed run_broker.sh
var script string

// Broker is a broker that runs. Its methods may be called from several goroutines.
type Broker struct {
	NameServer string // for clients, host:port
	Address    string // the broker's own host:port
	Store      string // the store's folder, which Stop deletes; `firearrow store` and Spark can read it before

	shell *exec.Cmd
	input io.Closer // the broker runs until it is closed
	stop  func() error
}

type options struct {
	topics   []topic
	settings []string
}

type topic struct {
	name   string
	queues int
}

// Option is an argument of Start and New.
type Option func(*options)

// WithTopic creates a topic when the broker has started.
func WithTopic(name string, queues int) Option {
	return func(o *options) { o.topics = append(o.topics, topic{name, queues}) }
}

// WithSetting sets a key of broker.conf, such as autoCreateTopicEnable.
func WithSetting(key, value string) Option {
	return func(o *options) { o.settings = append(o.settings, "--set", key+"="+value) }
}

// Start starts a broker for this test and those below it, and stops it after them. It ends the test if there is no broker.
func Start(t testing.TB, given ...Option) *Broker {
	t.Helper()
	broker, err := New(given...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := broker.Stop(); err != nil {
			t.Error(err)
		}
	})
	return broker
}

// New starts a broker, for a TestMain with one broker for all tests of a package. Stop it after them.
func New(given ...Option) (*Broker, error) {
	var chosen options
	for _, option := range given {
		option(&chosen)
	}
	command, err := findCommand()
	if err != nil {
		return nil, err
	}
	broker, err := run(command, chosen.settings)
	if err != nil {
		return nil, err
	}
	for _, wanted := range chosen.topics {
		if err := broker.CreateTopic(wanted.name, wanted.queues); err != nil {
			return nil, errors.Join(err, broker.Stop())
		}
	}
	return broker, nil
}

func findCommand() (string, error) {
	if named := os.Getenv("FIREARROW_COMMAND"); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("firearrowtest: there is no program %s: set FIREARROW_COMMAND to the path of the command firearrow", named)
		}
		return path, nil
	}
	path, err := exec.LookPath("firearrow")
	if err != nil {
		return "", errors.New("firearrowtest: there is no command firearrow on PATH: run `pip install firearrow`, or set FIREARROW_COMMAND to its path")
	}
	return path, nil
}

func run(command string, settings []string) (*Broker, error) {
	folder, err := os.MkdirTemp("", "firearrow-")
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(folder, "broker.log"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	defer log.Close()
	store := filepath.Join(folder, "store")
	arguments := []string{"-c", script, "sh", folder, command, "broker", "--store", store,
		"--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0"}
	shell := exec.Command("sh", append(arguments, settings...)...)
	shell.Stderr = log
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Stop can kill all; the terminal's signals end the tests first
	input, err := shell.StdinPipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	output, err := shell.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	if err := shell.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	broker := &Broker{Store: store, shell: shell, input: input}
	broker.stop = sync.OnceValue(broker.end)
	line := firstLine(output)
	found := ready.FindStringSubmatch(line)
	if found == nil {
		text := logTail(log.Name())
		return nil, errors.Join(fmt.Errorf("firearrowtest: the broker did not start: %s\n%s", line, text), broker.Stop())
	}
	broker.Address, broker.NameServer = found[1], found[2]
	return broker, nil
}

// firstLine returns the ready line, or what happened instead.
func firstLine(output io.Reader) string {
	lines := make(chan string, 1)
	go func() {
		line, err := bufio.NewReader(output).ReadString('\n')
		if err != nil && line == "" {
			line = "it ended"
		}
		lines <- line
	}()
	select {
	case line := <-lines:
		return line
	case <-time.After(readyWithin):
		return fmt.Sprintf("it was not ready within %s", readyWithin)
	}
}

func logTail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-logCharsShown):])
}

// Stop ends the broker with SIGTERM, after ten seconds with SIGKILL, and deletes its store. A second Stop does nothing.
func (b *Broker) Stop() error {
	return b.stop()
}

func (b *Broker) end() error {
	if err := b.input.Close(); err != nil {
		return err
	}
	timer := time.AfterFunc(stopWithin, func() { syscall.Kill(-b.shell.Process.Pid, syscall.SIGKILL) })
	defer timer.Stop()
	err := b.shell.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil // with which code a broker ends does not matter
	}
	return errors.Join(err, os.RemoveAll(filepath.Dir(b.Store))) // if all were killed, the shell did not delete it
}
