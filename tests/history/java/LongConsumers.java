import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** One consumer that consumes concurrently and fails some messages once, one in order, a member of the shared group. */
final class LongConsumers {
    private static final int FAILS_EVERY = 40;
    private final String name;
    private final String nameServer;
    private final List<DefaultMQPushConsumer> running = new ArrayList<>();

    LongConsumers(String name, String nameServer) {
        this.name = name;
        this.nameServer = nameServer;
    }

    void start() throws MQClientException {
        begin(name + "-concurrent", "concurrent", false, true);
        begin(name + "-orderly", "orderly", false, false);
        begin("shared", "concurrent", true, false);
    }

    void close() {
        running.forEach(DefaultMQPushConsumer::shutdown);
        running.clear();
    }

    private void begin(String group, String how, boolean shared, boolean fails) throws MQClientException {
        Events.event("joined").with("group", group).with("topic", LongHistory.PLAIN).with("how", how)
            .with("shared", shared).emit();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(name + "-" + group);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setPersistConsumerOffsetInterval(300);
        consumer.setPollNameServerInterval(500);
        consumer.setHeartbeatBrokerInterval(500);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(LongHistory.PLAIN, "*");
        if (how.equals("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(message -> tellGot(group, message, true));
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(1);
                boolean again = false;
                for (MessageExt message : messages) {
                    boolean fail = fails && message.getReconsumeTimes() == 0
                        && message.getQueueOffset() % FAILS_EVERY == 0;
                    tellGot(group, message, !fail);
                    again |= fail;
                }
                return again ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        running.add(consumer);
    }

    private static void tellGot(String group, MessageExt message, boolean ok) {
        byte[] body = message.getBody();
        Instant now = Instant.now();
        Events.event("got").with("group", group).with("topic", message.getTopic())
            .with("queue", message.getQueueId()).with("offset", message.getQueueOffset())
            .with("id", new String(body, StandardCharsets.US_ASCII).split("\\|", 2)[0])
            .with("crc", LongSenders.crc(body)).with("size", body.length).with("times", message.getReconsumeTimes())
            .with("ok", ok).with("at", now.getEpochSecond() * 1_000_000_000L + now.getNano()).emit();
    }
}
