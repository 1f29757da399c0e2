// Package invoices is a service: it consumes orders and sends an invoice for each.
package invoices

import (
	"context"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Service consumes the topic orders and sends to the topic invoices until it is closed.
type Service struct {
	producer rocketmq.Producer
	consumer rocketmq.PushConsumer
}

// Start starts the service with the clients of this name server.
func Start(nameServer string) (*Service, error) {
	servers := []string{nameServer}
	sending, err := rocketmq.NewProducer(producer.WithNameServer(servers), producer.WithGroupName("invoices"))
	if err != nil {
		return nil, err
	}
	consuming, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(servers),
		consumer.WithGroupName("invoices"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return nil, err
	}
	service := &Service{sending, consuming}
	if err := consuming.Subscribe("orders", consumer.MessageSelector{}, service.handle); err != nil {
		return nil, err
	}
	if err := sending.Start(); err != nil {
		return nil, err
	}
	return service, consuming.Start()
}

func (s *Service) handle(ctx context.Context, orders ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	for _, order := range orders {
		invoice := primitive.NewMessage("invoices", append([]byte("invoice for "), order.Body...))
		invoice.WithKeys([]string{order.GetKeys()})
		if _, err := s.producer.SendSync(ctx, invoice); err != nil {
			return consumer.ConsumeRetryLater, err
		}
	}
	return consumer.ConsumeSuccess, nil
}

// Close waits for running handlers and ends the clients.
func (s *Service) Close() error {
	if err := s.consumer.Shutdown(); err != nil {
		return err
	}
	return s.producer.Shutdown()
}
