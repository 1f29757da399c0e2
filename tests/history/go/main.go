// The Go client of a history: senders and consumers that read commands on standard input and write one JSON object a line
// on standard output for each event. The events are listed in `tests/history/events.py`.
//
// Arguments: NAME NAME_SERVER SEED PACE_S.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	plain  = "Plain"
	queues = 4
)

type event map[string]any

var output sync.Mutex

// emit writes one line, before the event happens; any goroutine may call it.
func emit(kind string, members event) {
	members["event"] = kind
	line, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

func main() {
	rlog.SetLogLevel("error")
	name, nameServer := os.Args[1], os.Args[2]
	seed, err := strconv.ParseInt(os.Args[3], 10, 64)
	must(err)
	pace, err := strconv.ParseFloat(os.Args[4], 64)
	must(err)
	senders := newSenders(name, nameServer, seed, time.Duration(pace*float64(time.Second)))
	consumers := newConsumers(name, nameServer)
	consumers.start()
	emit("done", event{"what": "start"})
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		switch orders.Text() {
		case "load":
			senders.load()
		case "rest":
			senders.rest()
		case "rejoin":
			consumers.close()
			consumers.start()
		default:
			panic(fmt.Sprintf("no order %q: say load, rest or rejoin", orders.Text()))
		}
		emit("done", event{"what": orders.Text()})
	}
	consumers.close()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
