package example;

import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A service: it consumes `orders` and sends an invoice for each to `invoices`. */
public final class Invoices implements AutoCloseable {
    private final DefaultMQProducer producer = new DefaultMQProducer("invoices");
    private final DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("invoices");

    public Invoices(String nameServer) throws MQClientException {
        producer.setNamesrvAddr(nameServer);
        producer.setSendMsgTimeout(30_000);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("orders", "new || paid");
        consumer.registerMessageListener((MessageListenerConcurrently) this::handle);
    }

    public Invoices start() throws MQClientException {
        producer.start();
        consumer.start();
        return this;
    }

    private ConsumeConcurrentlyStatus handle(List<MessageExt> orders, ConsumeConcurrentlyContext context) {
        try {
            for (MessageExt order : orders) {
                String text = "invoice for " + new String(order.getBody());
                producer.send(new Message("invoices", null, order.getKeys(), text.getBytes()));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        } catch (Exception error) {
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        }
    }

    @Override
    public void close() {
        consumer.shutdown();
        producer.shutdown();
    }
}
