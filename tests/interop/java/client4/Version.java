import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** What 4.x calls otherwise, and nothing more. */
final class Version {
    static final String NAME = "4.9.8";

    private Version() {
    }

    static void setModel(DefaultMQPushConsumer consumer, String model) {
        consumer.setMessageModel(MessageModel.valueOf(model));
    }

    static boolean run(String operation, Parameters parameters, String nameServer) {
        return false;
    }
}
