package firearrowtest

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	compressed      = 1 << 0
	bornHostIPv6    = 1 << 4
	storeHostIPv6   = 1 << 5
	compressionMask = 7 << 8 // 0 and 3 are zlib, 1 LZ4, 2 Zstandard

	nameEnd  = "\x01"
	valueEnd = "\x02"
)

// Message is a message as the broker stores it.
type Message struct {
	Topic       string
	Body        []byte
	Tags        string
	Keys        []string
	Properties  map[string]string
	QueueID     int
	QueueOffset int64

	physicalOffset int64
}

// fields reads the fields of a record one after the other. After a field that is not there, all are zero.
type fields struct {
	left  []byte
	short bool
}

func (f *fields) bytes(length int) []byte {
	if length < 0 || length > len(f.left) {
		f.short, f.left = true, nil
		return nil
	}
	field := f.left[:length]
	f.left = f.left[length:]
	return field
}

func (f *fields) number(length int) int64 {
	var value int64
	for _, digit := range f.bytes(length) {
		value = value<<8 | int64(digit)
	}
	return value
}

func decodeAll(body []byte) ([]Message, error) {
	var found []Message
	for len(body) > 0 {
		if len(body) < 4 {
			return nil, errors.New("firearrowtest: a message is cut off")
		}
		size := int(binary.BigEndian.Uint32(body))
		if size < 4 || size > len(body) {
			return nil, errors.New("firearrowtest: a message is cut off")
		}
		message, err := decode(body[:size])
		if err != nil {
			return nil, err
		}
		found = append(found, message)
		body = body[size:]
	}
	return found, nil
}

// decode reads a record of the commit log, in which answers to pulls carry messages. With magic code 2 the topic's length
// has two bytes.
func decode(record []byte) (Message, error) {
	f := &fields{left: record}
	var m Message
	f.bytes(4) // size
	topicLength := 1
	if magic := uint32(f.number(4)); magic == 0xDAA320AB {
		topicLength = 2
	}
	f.bytes(4) // checksum of the body
	m.QueueID = int(f.number(4))
	f.bytes(4) // flag
	m.QueueOffset = f.number(8)
	m.physicalOffset = f.number(8)
	flags := int(f.number(4))
	f.bytes(8 + hostLength(flags&bornHostIPv6))  // born
	f.bytes(8 + hostLength(flags&storeHostIPv6)) // stored
	f.bytes(4 + 8)                               // reconsume times, offset of the prepared transaction
	body := f.bytes(int(f.number(4)))
	m.Topic = string(f.bytes(int(f.number(topicLength))))
	m.Properties = properties(string(f.bytes(int(f.number(2)))))
	if f.short {
		return m, errors.New("firearrowtest: a message is cut off")
	}
	m.Tags = m.Properties["TAGS"]
	m.Keys = strings.Fields(m.Properties["KEYS"])
	var err error
	m.Body, err = expanded(body, flags)
	return m, err
}

func hostLength(isIPv6 int) int {
	if isIPv6 != 0 {
		return 16 + 4
	}
	return 4 + 4
}

func properties(text string) map[string]string {
	found := map[string]string{}
	for _, pair := range strings.Split(text, valueEnd) {
		if name, value, hasValue := strings.Cut(pair, nameEnd); hasValue {
			found[name] = value
		}
	}
	return found
}

func expanded(body []byte, flags int) ([]byte, error) {
	if flags&compressed == 0 {
		return bytes.Clone(body), nil
	}
	if kind := flags & compressionMask >> 8; kind != 0 && kind != 3 {
		return nil, fmt.Errorf("firearrowtest: a body is compressed with kind %d: only zlib can be read", kind)
	}
	reader, err := zlib.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}
