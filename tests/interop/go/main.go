// One official client that executes commands line by line: `OPERATION key=value&key=value` on standard input, one JSON
// object a line on standard output, as `../java/driver/Driver.java` does it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type event map[string]any

var output sync.Mutex

// emit writes one line; any goroutine may.
func emit(e event) {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

type operation func(url.Values) error

func main() {
	rlog.SetLogLevel("error")
	operations := map[string]operation{}
	newProducers(os.Args[1]).register(operations)
	newConsumers(os.Args[1]).register(operations)
	emit(event{"event": "ready", "version": "go 2.1.2"})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 64<<20)
	for lines.Scan() && lines.Text() != "quit" {
		name, query, _ := strings.Cut(lines.Text(), " ")
		if err := run(operations[name], name, query); err != nil {
			emit(event{"event": "failed", "type": fmt.Sprintf("%T", err), "code": -1, "message": err.Error()})
		} else {
			emit(event{"event": "done"})
		}
	}
}

func run(do operation, name, query string) error {
	if do == nil {
		return fmt.Errorf("no operation %s", name)
	}
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	return do(parameters)
}
