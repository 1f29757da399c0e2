import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A producer and a consumer in a namespace, known by the consumer's name. A message with the tag `again` is
 * taken at its second try.
 */
final class Namespaces {
    private final String nameServer;
    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final Map<String, DefaultMQPushConsumer> consumers = new HashMap<>();

    Namespaces(String nameServer) {
        this.nameServer = nameServer;
    }

    boolean run(String operation, Parameters parameters) throws Exception {
        switch (operation) {
            case "enter":
                enter(parameters);
                return true;
            case "leave":
                producers.remove(parameters.text("name")).shutdown();
                consumers.remove(parameters.text("name")).shutdown();
                return true;
            default:
                return false;
        }
    }

    private void enter(Parameters parameters) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(parameters.text("group") + "-sends");
        settle(producer, parameters, "-sends");
        producer.start();
        producers.put(parameters.text("name"), producer);
        for (String body : parameters.all("body")) {
            Message message =
                new Message(parameters.text("topic"), parameters.text("tags", ""), Parameters.bytes(body));
            Events.event("sent").with("status", producer.send(message).getSendStatus()).emit();
        }
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(parameters.text("group"));
        settle(consumer, parameters, "");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(parameters.text("topic"), "*");
        if (parameters.text("orderly", "").isEmpty()) {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                taken(parameters, messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        } else {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                taken(parameters, messages) ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        }
        consumer.start();
        consumers.put(parameters.text("name"), consumer);
    }

    /** `kind` is `setNamespace` or, where the client has it, `setNamespaceV2`. */
    private void settle(ClientConfig client, Parameters parameters, String suffix) throws Exception {
        client.setNamesrvAddr(nameServer);
        client.setInstanceName(parameters.text("name") + suffix);
        client.setPollNameServerInterval(500);
        ClientConfig.class.getMethod(parameters.text("kind"), String.class)
            .invoke(client, parameters.text("namespace"));
    }

    private static boolean taken(Parameters parameters, List<MessageExt> messages) {
        boolean taken = true;
        for (MessageExt message : new ArrayList<>(messages)) {
            Events.message("message", message).with("consumer", parameters.text("name")).emit();
            taken &= !"again".equals(message.getTags()) || message.getReconsumeTimes() > 0;
        }
        return taken;
    }
}
