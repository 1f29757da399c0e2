import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Requests and repliers. A replier answers `re: BODY`, and is silent to a message with the tag `silent`. */
final class Requests {
    private final String nameServer;
    private final Producers producers;
    private final Map<String, DefaultMQPushConsumer> repliers = new HashMap<>();

    Requests(String nameServer, Producers producers) {
        this.nameServer = nameServer;
        this.producers = producers;
    }

    boolean run(String operation, Parameters parameters) throws Exception {
        switch (operation) {
            case "request":
                request(parameters);
                return true;
            case "reply":
                reply(parameters);
                return true;
            case "stopReply":
                repliers.remove(parameters.text("name")).shutdown();
                return true;
            default:
                return false;
        }
    }

    private void request(Parameters parameters) throws Exception {
        for (Message message : Producers.messages(parameters)) {
            try {
                Message reply = producers.producer(parameters).request(message, parameters.number("timeoutMs", 20_000));
                Events.message("reply", (MessageExt) reply).emit();
            } catch (RequestTimeoutException late) {
                Events.failure("late", late).emit();
            }
        }
    }

    private void reply(Parameters parameters) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(parameters.text("group"));
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(parameters.text("name"));
        consumer.setPollNameServerInterval(500);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(parameters.text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (Message message : answers(messages)) {
                try {
                    Events.event("answered").with("consumer", parameters.text("name"))
                        .with("status", producers.producer(parameters).send(message).getSendStatus()).emit();
                } catch (Exception error) {
                    Events.failure("answered", error).with("consumer", parameters.text("name")).emit();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        repliers.put(parameters.text("name"), consumer);
    }

    private static List<Message> answers(List<MessageExt> requests) {
        List<Message> answers = new ArrayList<>();
        for (MessageExt request : requests) {
            if (!"silent".equals(request.getTags())) {
                byte[] body = ("re: " + new String(request.getBody())).getBytes();
                try {
                    answers.add(MessageUtil.createReplyMessage(request, body));
                } catch (Exception error) {
                    Events.failure("answered", error).with("consumer", "nobody").emit();
                }
            }
        }
        return answers;
    }
}
