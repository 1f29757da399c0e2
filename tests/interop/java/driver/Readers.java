import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads of messages and offsets: the pull consumer, the lite one, look-up by id and by key. */
final class Readers {
    private final String nameServer;
    private DefaultMQPullConsumer puller;

    Readers(String nameServer) {
        this.nameServer = nameServer;
    }

    boolean run(String operation, Parameters parameters) throws Exception {
        switch (operation) {
            case "queues":
                for (MessageQueue queue : puller().fetchSubscribeMessageQueues(parameters.text("topic"))) {
                    Events.queue("queue", queue).with("min", puller().minOffset(queue))
                        .with("max", puller().maxOffset(queue))
                        .with("earliest", puller().earliestMsgStoreTime(queue)).emit();
                }
                return true;
            case "pull":
                pull(parameters);
                return true;
            case "commit":
                puller().updateConsumeOffset(queue(parameters), parameters.number("offset", 0));
                puller().getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue(parameters));
                return true;
            case "committed":
                Events.event("offset").with("offset", puller().fetchConsumeOffset(queue(parameters), true)).emit();
                return true;
            case "search":
                Events.event("offset").with("offset",
                    puller().searchOffset(queue(parameters), parameters.number("timestamp", 0))).emit();
                return true;
            case "view":
                Events.message("message", puller().viewMessage(parameters.text("topic"), parameters.text("id"))).emit();
                return true;
            case "query":
                for (MessageExt message : puller().queryMessage(parameters.text("topic"), parameters.text("key"), 64,
                    0, System.currentTimeMillis() + 60_000).getMessageList()) {
                    Events.message("message", message).emit();
                }
                return true;
            case "pullSigned":
                pullSigned(parameters);
                return true;
            case "readLite":
                readLite(parameters);
                return true;
            default:
                return false;
        }
    }

    private DefaultMQPullConsumer puller() throws Exception {
        if (puller == null) {
            puller = new DefaultMQPullConsumer("interop-puller");
            puller.setNamesrvAddr(nameServer);
            puller.setInstanceName("interop-puller");
            puller.start();
        }
        return puller;
    }

    private MessageQueue queue(Parameters parameters) throws Exception {
        int wanted = (int) parameters.number("queue", 0);
        for (MessageQueue queue : puller().fetchSubscribeMessageQueues(parameters.text("topic"))) {
            if (queue.getQueueId() == wanted) {
                return queue;
            }
        }
        throw new IllegalArgumentException("no queue " + wanted);
    }

    private void pull(Parameters parameters) throws Exception {
        MessageSelector selector = parameters.text("sql", "").isEmpty()
            ? MessageSelector.byTag(parameters.text("tags", "*")) : MessageSelector.bySql(parameters.text("sql"));
        MQClientInstance client = puller().getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
        if (!parameters.text("sql", "").isEmpty()) { // refused by the client until it knows the version from a heartbeat
            client.updateTopicRouteInfoFromNameServer(parameters.text("topic"));
            client.sendHeartbeatToAllBrokerWithLock();
        }
        PullResult result = puller().pull(queue(parameters), selector, parameters.number("offset", 0),
            (int) parameters.number("count", 32), 10_000);
        List<MessageExt> messages = result.getMsgFoundList();
        for (MessageExt message : messages == null ? List.<MessageExt>of() : messages) {
            Events.message("message", message).emit();
        }
        Events.event("pulled").with("status", result.getPullStatus()).with("next", result.getNextBeginOffset())
            .with("min", result.getMinOffset()).with("max", result.getMaxOffset()).emit();
    }

    /** One pull, by a client of its own with its own group and keys. */
    private void pullSigned(Parameters parameters) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(parameters.text("group"), Keys.hook(parameters));
        consumer.setNamesrvAddr(parameters.text("nameServer", nameServer));
        consumer.setInstanceName(parameters.text("instance"));
        consumer.start();
        try {
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(parameters.text("topic"))) {
                PullResult result = consumer.pull(queue, "*", 0, 1);
                Events.event("pulled").with("status", result.getPullStatus()).emit();
                return;
            }
            throw new IllegalArgumentException("no queue of " + parameters.text("topic"));
        } finally {
            consumer.shutdown();
        }
    }

    /**
     * Assign all queues by hand, go to the beginning, and poll until `count` different messages have arrived.
     * A seek while the first pull is in flight returns that pull's messages twice: a race of the client.
     */
    private void readLite(Parameters parameters) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(parameters.text("group"));
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(parameters.text("group"));
        consumer.setAutoCommit(false);
        // no seek: it interrupts the pull in flight, and then Apache's client closes the channel that all share
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.start();
        try {
            Collection<MessageQueue> queues = consumer.fetchMessageQueues(parameters.text("topic"));
            consumer.assign(queues);
            long wanted = parameters.number("count", 1);
            long deadline = System.nanoTime() + 30_000_000_000L;
            Set<String> seen = new HashSet<>();
            while (seen.size() < wanted && System.nanoTime() < deadline) {
                for (MessageExt message : consumer.poll(1000)) {
                    if (seen.add(message.getQueueId() + ":" + message.getQueueOffset())) {
                        Events.message("message", message).emit();
                    }
                }
            }
            consumer.commitSync();
        } finally {
            consumer.shutdown();
        }
    }
}
