import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Messages in transactions; their properties decide their outcome: `first` is the producer's decision at once,
 * `checked` its answer to a check, after `unknown` answers UNKNOWN. An event `check` for each check.
 */
final class Transactions implements TransactionListener {
    private final String nameServer;
    private final Map<String, TransactionMQProducer> producers = new HashMap<>();
    private final Map<String, Integer> asked = new ConcurrentHashMap<>();

    Transactions(String nameServer) {
        this.nameServer = nameServer;
    }

    boolean run(String operation, Parameters parameters) throws Exception {
        switch (operation) {
            case "transact":
                for (Message message : Producers.messages(parameters)) {
                    TransactionSendResult result = producer(parameters).sendMessageInTransaction(message, null);
                    Events.queue("sent", result.getMessageQueue()).with("status", result.getSendStatus())
                        .with("msgId", result.getMsgId()).with("offsetMsgId", result.getOffsetMsgId())
                        .with("queueOffset", result.getQueueOffset()).with("transactionId", result.getTransactionId())
                        .with("state", result.getLocalTransactionState()).emit();
                }
                return true;
            case "stopTransactions":
                producers.remove(parameters.text("group")).shutdown();
                return true;
            default:
                return false;
        }
    }

    private TransactionMQProducer producer(Parameters parameters) throws Exception {
        String group = parameters.text("group");
        TransactionMQProducer producer = producers.get(group);
        if (producer == null) {
            producer = new TransactionMQProducer(group);
            producer.setNamesrvAddr(nameServer);
            producer.setInstanceName(group);
            producer.setPollNameServerInterval(500);
            producer.setSendMsgTimeout(20_000);
            producer.setTransactionListener(this);
            producer.start();
            producers.put(group, producer);
        }
        return producer;
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        return LocalTransactionState.valueOf(message.getUserProperty("first"));
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        int before = asked.merge(message.getTransactionId(), 1, Integer::sum) - 1;
        Events.message("check", message).with("consumer", message.getProperty("PGROUP"))
            .with("transactionId", message.getTransactionId()).with("at", System.currentTimeMillis()).emit();
        String unknown = message.getUserProperty("unknown");
        return unknown != null && before < Integer.parseInt(unknown) ? LocalTransactionState.UNKNOW
            : LocalTransactionState.valueOf(message.getUserProperty("checked"));
    }
}
