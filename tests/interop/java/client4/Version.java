import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** What has another name in 4.x. */
final class Version {
    static final String NAME = "4.9.8";

    private Version() {
    }

    static void setModel(DefaultMQPushConsumer consumer, String model) {
        consumer.setMessageModel(MessageModel.valueOf(model));
    }

    static void pop(DefaultMQPushConsumer consumer) {
        throw new UnsupportedOperationException("4.x cannot pop");
    }

    static void compress(DefaultMQProducer producer, String type) {
        if (!type.equals("ZLIB")) {
            throw new UnsupportedOperationException("4.x sends zlib, unless a system property says otherwise");
        }
    }

    static void prepare(Message message, Parameters parameters) {
    }

    static Events add(SendResult result, Events event) {
        return event;
    }

    static boolean run(String operation, Parameters parameters, String nameServer, Producers producers) {
        if (!operation.equals("mqadmin")) {
            return false;
        }
        Events.event("output").with("text", Administration.run(parameters, nameServer)).emit();
        return true;
    }
}
