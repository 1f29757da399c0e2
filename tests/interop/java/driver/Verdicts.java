import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * How a consumer handles messages: each is reported as an event, then fails as often as its property `failures` says.
 * `delayLevel` is the consumer's choice for the next delivery, -1 sends to the dead letters.
 */
final class Verdicts {
    private final String name;
    private final int delayLevel;

    private Verdicts(String name, int delayLevel) {
        this.name = name;
        this.delayLevel = delayLevel;
    }

    static void judge(DefaultMQPushConsumer consumer, Parameters parameters) {
        Verdicts verdicts = new Verdicts(parameters.text("name"), (int) parameters.number("delayLevel", 0));
        consumer.setMaxReconsumeTimes((int) parameters.number("maxReconsumeTimes", -1));
        if (parameters.text("orderly", "").isEmpty()) {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(verdicts.delayLevel);
                return verdicts.fails(messages) ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                    : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        } else {
            consumer.setSuspendCurrentQueueTimeMillis(parameters.number("suspendMs", 1000));
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                verdicts.fails(messages) ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
                    : ConsumeOrderlyStatus.SUCCESS);
        }
    }

    private boolean fails(List<MessageExt> messages) {
        boolean fails = false;
        for (MessageExt message : messages) {
            Events.message("message", message).with("consumer", name).with("at", System.currentTimeMillis())
                .with("thread", Thread.currentThread().getName()).emit();
            String failures = message.getUserProperty("failures");
            fails |= failures != null && message.getReconsumeTimes() < Integer.parseInt(failures);
        }
        return fails;
    }
}
