package invoices

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/firearrow/firearrow/packaging/go/firearrowtest"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryOrderGetsAnInvoice(t *testing.T) {
	broker := firearrowtest.Start(t, firearrowtest.WithTopic("orders", 4), firearrowtest.WithTopic("invoices", 4))
	service, err := Start(broker.NameServer)
	check(t, err)
	t.Cleanup(func() { check(t, service.Close()) })

	shop, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{broker.NameServer}), producer.WithGroupName("shop"), producer.WithInstanceName("shop"))
	check(t, err)
	check(t, shop.Start())
	for _, item := range []string{"book", "pen", "lamp"} {
		order := primitive.NewMessage("orders", []byte(item)).WithKeys([]string{"order-" + item})
		_, err := shop.SendSync(context.Background(), order)
		check(t, err)
	}
	check(t, shop.Shutdown())

	sent := map[string]string{}
	for _, invoice := range broker.AwaitMessages(t, "invoices", 3, 30*time.Second) {
		sent[invoice.Keys[0]] = string(invoice.Body)
	}
	wanted := map[string]string{
		"order-book": "invoice for book", "order-pen": "invoice for pen", "order-lamp": "invoice for lamp",
	}
	if !maps.Equal(sent, wanted) {
		t.Errorf("sent %v", sent)
	}
}
