import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers, each known by a name, which is also its instance name; an event `message` for each message. */
final class Consumers {
    private final String nameServer;
    private final Map<String, DefaultMQPushConsumer> consumers = new HashMap<>();

    Consumers(String nameServer) {
        this.nameServer = nameServer;
    }

    boolean run(String operation, Parameters parameters) throws Exception {
        switch (operation) {
            case "consume":
                consume(parameters);
                return true;
            case "awaitQueues":
                awaitQueues(parameters);
                return true;
            case "stop":
                consumers.remove(parameters.text("name")).shutdown();
                return true;
            default:
                return false;
        }
    }

    private void consume(Parameters parameters) throws Exception {
        String name = parameters.text("name");
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(parameters.text("group"), Keys.hook(parameters),
            new AllocateMessageQueueAveragely(), !parameters.text("trace", "").isEmpty(), null);
        consumer.setNamesrvAddr(parameters.text("nameServer", nameServer));
        consumer.setInstanceName(name);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setPollNameServerInterval(500);
        consumer.setAwaitTerminationMillisWhenShutdown(10_000); // what was reported counts: its listener may not have returned yet
        Version.setModel(consumer, parameters.text("model", "CLUSTERING"));
        consumer.setConsumeFromWhere(
            ConsumeFromWhere.valueOf("CONSUME_FROM_" + parameters.text("from", "FIRST_OFFSET")));
        if (!parameters.text("timestamp", "").isEmpty()) {
            consumer.setConsumeTimestamp(parameters.text("timestamp"));
        }
        if (!parameters.text("pop", "").isEmpty()) {
            Version.pop(consumer);
        }
        if (parameters.text("sql", "").isEmpty()) {
            consumer.subscribe(parameters.text("topic"), parameters.text("tags", "*"));
        } else {
            consumer.subscribe(parameters.text("topic"), MessageSelector.bySql(parameters.text("sql")));
        }
        Verdicts.judge(consumer, parameters);
        consumer.start();
        consumers.put(name, consumer);
    }

    /** Wait until the consumer owns exactly `count` queues of the topic, and report them. */
    private void awaitQueues(Parameters parameters) throws Exception {
        DefaultMQPushConsumer consumer = consumers.get(parameters.text("name"));
        long deadline = System.nanoTime() + parameters.number("seconds", 30) * 1_000_000_000L;
        while (true) {
            List<MessageQueue> held = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl()
                .getProcessQueueTable().entrySet().stream()
                .filter(entry -> entry.getKey().getTopic().equals(parameters.text("topic")))
                .filter(entry -> parameters.text("locked", "").isEmpty() || entry.getValue().isLocked())
                .map(Map.Entry::getKey).collect(java.util.stream.Collectors.toList());
            if (held.size() == parameters.number("count", 0)) {
                held.forEach(queue -> Events.queue("queue", queue).emit());
                return;
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("holds " + held);
            }
            Thread.sleep(20);
        }
    }
}
