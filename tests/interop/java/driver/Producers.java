import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageQueue;

/** Sends. One producer a group, started when first asked for. */
final class Producers {
    private final String nameServer;
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();

    Producers(String nameServer) {
        this.nameServer = nameServer;
    }

    boolean run(String operation, Parameters parameters) throws Exception {
        switch (operation) {
            case "send":
                send(parameters);
                return true;
            case "route":
                for (MessageQueue queue : producer(parameters).fetchPublishMessageQueues(parameters.text("topic"))) {
                    Events.queue("queue", queue).emit();
                }
                return true;
            case "stopProducer":
                producers.remove(parameters.text("group")).shutdown();
                return true;
            case "rest":
                producers.values().forEach(DefaultMQProducer::shutdown);
                producers.clear();
                return true;
            default:
                return false;
        }
    }

    DefaultMQProducer producer(Parameters parameters) throws MQClientException {
        String group = parameters.text("group");
        DefaultMQProducer producer = producers.get(group);
        if (producer == null) {
            producer = new DefaultMQProducer(group, Keys.hook(parameters), !parameters.text("trace", "").isEmpty(), null);
            producer.setNamesrvAddr(parameters.text("nameServer", nameServer));
            producer.setInstanceName(parameters.text("instance", group));
            producer.setPollNameServerInterval(500);
            producer.setMaxMessageSize((int) parameters.number("maxMessageSize", 4 << 20));
            producer.setSendMsgTimeout(20_000);
            producer.setRetryTimesWhenSendFailed(0);
            if (parameters.text("compression", "").equals("none")) {
                producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
            } else {
                Version.compress(producer, parameters.text("compression", "ZLIB"));
            }
            producer.start();
            producers.put(group, producer);
        }
        return producer;
    }

    private void send(Parameters parameters) throws Exception {
        DefaultMQProducer producer = producer(parameters);
        List<Message> messages = messages(parameters);
        String how = parameters.text("how", "sync");
        if (how.equals("batch")) {
            sent(producer.send(messages));
        } else if (how.equals("async")) {
            sendAsync(producer, messages);
        } else {
            for (Message message : messages) {
                if (how.equals("oneway")) {
                    producer.sendOneway(message);
                } else if (how.equals("queue")) {
                    sent(producer.send(message, (queues, sent, queue) -> queues.get((Integer) queue),
                        (int) parameters.number("queue", 0)));
                } else {
                    sent(producer.send(message));
                }
            }
        }
    }

    static List<Message> messages(Parameters parameters) {
        List<Message> messages = new ArrayList<>();
        for (String body : parameters.all("body")) {
            Message message = new Message(parameters.text("topic"), Parameters.bytes(body));
            message.setFlag((int) parameters.number("flag", 0));
            if (!parameters.text("tags", "").isEmpty()) {
                message.setTags(parameters.text("tags"));
            }
            if (!parameters.text("keys", "").isEmpty()) {
                message.setKeys(parameters.text("keys"));
            }
            parameters.under("property.").forEach(message::putUserProperty);
            if (parameters.number("delayLevel", 0) != 0) {
                message.setDelayTimeLevel((int) parameters.number("delayLevel", 0));
            }
            parameters.under("system.").forEach((key, value) -> MessageAccessor.putProperty(message, key, value));
            Version.prepare(message, parameters);
            messages.add(message);
        }
        return messages;
    }

    private static void sendAsync(DefaultMQProducer producer, List<Message> messages) throws Exception {
        CountDownLatch answers = new CountDownLatch(messages.size());
        for (Message message : messages) {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    sent(result);
                    answers.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    Events.failure("refused", error).emit();
                    answers.countDown();
                }
            });
        }
        if (!answers.await(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException(answers.getCount() + " callbacks did not come");
        }
    }

    private static void sent(SendResult result) {
        Version.add(result, Events.queue("sent", result.getMessageQueue()).with("status", result.getSendStatus())
            .with("msgId", result.getMsgId()).with("offsetMsgId", result.getOffsetMsgId())
            .with("queueOffset", result.getQueueOffset())).emit();
    }
}
