package io.github.firearrow.junit5;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** What the tests do with a broker. */
final class Sending {
    private static final int SEND_TIMEOUT_MS = 30_000;

    private Sending() {}

    /** Send the bodies, in this order, with Apache's producer. */
    static void send(FireArrowBroker broker, String topic, String... bodies) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("junit5-tests");
        producer.setNamesrvAddr(broker.nameServer());
        producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
        producer.setCompressMsgBodyOverHowmuch(1000);
        producer.start();
        try {
            for (String body : bodies) {
                producer.send(new Message(topic, "new", body.getBytes()));
            }
        } finally {
            producer.shutdown();
        }
    }
}
