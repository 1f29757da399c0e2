import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** What has another name in 5.x, and what only this class path has: `mqadmin`, pops, timers, priorities. */
final class Version {
    static final String NAME = "5.5.0";

    private Version() {
    }

    static void setModel(DefaultMQPushConsumer consumer, String model) {
        consumer.setMessageModel(MessageModel.valueOf(model));
    }

    static void pop(DefaultMQPushConsumer consumer) {
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(10_000);
    }

    static void compress(DefaultMQProducer producer, String type) {
        producer.setCompressType(CompressionType.of(type));
    }

    /** `delaySeconds`, `delayMs`, `deliverInMs` from now, or `priority`. */
    static void prepare(Message message, Parameters parameters) {
        if (parameters.number("delaySeconds", 0) != 0) {
            message.setDelayTimeSec(parameters.number("delaySeconds", 0));
        }
        if (parameters.number("delayMs", 0) != 0) {
            message.setDelayTimeMs(parameters.number("delayMs", 0));
        }
        if (parameters.number("deliverInMs", 0) != 0) {
            message.setDeliverTimeMs(System.currentTimeMillis() + parameters.number("deliverInMs", 0));
        }
        if (parameters.number("priority", -1) >= 0) {
            message.setPriority((int) parameters.number("priority", -1));
        }
    }

    static Events add(SendResult result, Events event) {
        return event.with("recallHandle", result.getRecallHandle());
    }

    static boolean run(String operation, Parameters parameters, String nameServer, Producers producers)
        throws Exception {
        switch (operation) {
            case "mqadmin":
                Events.event("output").with("text", Administration.run(parameters, nameServer)).emit();
                return true;
            case "recall":
                Events.event("recalled").with("msgId", producers.producer(parameters)
                    .recallMessage(parameters.text("topic"), parameters.text("handle"))).emit();
                return true;
            default:
                return false;
        }
    }
}
