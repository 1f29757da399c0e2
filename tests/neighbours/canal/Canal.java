import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import com.alibaba.otter.canal.client.rocketmq.RocketMQCanalConnector;
import com.alibaba.otter.canal.protocol.FlatMessage;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Changes of rows as canal's producer sends them, flat messages in the partition of their key's hash, one by one and
 *  in batches; read by canal's connector, which rolls the first batch back: `Canal NAME_SERVER TOPIC GROUP ROWS VERSIONS`. */
public class Canal {
    static final long WITHIN_MS = 60_000;

    public static void main(String[] arguments) throws Exception {
        String nameServer = arguments[0], topic = arguments[1], group = arguments[2];
        int rows = Integer.parseInt(arguments[3]), versions = Integer.parseInt(arguments[4]);
        int sent = send(nameServer, topic, group + "-producer", rows, versions);
        RocketMQCanalConnector connector = new RocketMQCanalConnector(nameServer, topic, group, 16, true);
        connector.connect();
        connector.subscribe();
        Map<String, Integer> last = new HashMap<>();
        int received = 0, rolledBack = 0, repeated = 0, outOfOrder = 0;
        long deadline = System.currentTimeMillis() + WITHIN_MS;
        while (received < sent && System.currentTimeMillis() < deadline) {
            List<FlatMessage> changes = connector.getFlatListWithoutAck(200L, TimeUnit.MILLISECONDS);
            if (!changes.isEmpty() && rolledBack == 0) {
                rolledBack = changes.size();
                connector.rollback();
                continue;
            }
            for (FlatMessage change : changes) {
                Map<String, String> row = change.getData().get(0);
                int version = Integer.parseInt(row.get("version"));
                int expected = last.getOrDefault(row.get("id"), 0);
                if (version < expected) {
                    repeated++;
                    continue;
                }
                outOfOrder += version == expected ? 0 : 1;
                last.put(row.get("id"), version + 1);
                received++;
            }
            if (!changes.isEmpty()) {
                connector.ack();
            }
        }
        connector.disconnect();
        System.out.println(JSON.toJSONString(Map.of("sent", sent, "received", received, "rolledBack", rolledBack,
            "repeated", repeated, "outOfOrder", outOfOrder)));
        System.exit(0);
    }

    /** Half of the versions one by one, with a selector; the others in a batch for each partition. */
    static int send(String nameServer, String topic, String group, int rows, int versions) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(nameServer);
        producer.setVipChannelEnabled(false);
        producer.start();
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
        int sent = 0;
        for (int version = 0; version < versions; version++) {
            Map<Integer, List<Message>> partitions = new HashMap<>();
            for (int row = 0; row < rows; row++) {
                Message message = new Message(topic, "", change(row, version));
                int partition = Math.abs(("orders_" + row).hashCode() % queues.size());
                if (version < versions / 2) {
                    SendResult result = producer.send(message, (known, one, chosen) -> known.get(partition), null);
                    sent += result.getSendStatus() == SendStatus.SEND_OK ? 1 : 0;
                } else {
                    partitions.computeIfAbsent(partition, any -> new ArrayList<>()).add(message);
                }
            }
            for (Map.Entry<Integer, List<Message>> batch : partitions.entrySet()) {
                SendResult result = producer.send(batch.getValue(), queues.get(batch.getKey()));
                sent += result.getSendStatus() == SendStatus.SEND_OK ? batch.getValue().size() : 0;
            }
        }
        producer.shutdown();
        return sent;
    }

    static byte[] change(int row, int version) {
        FlatMessage change = new FlatMessage(version);
        change.setDatabase("shop");
        change.setTable("orders");
        change.addPkName("id");
        change.setIsDdl(false);
        change.setType(version == 0 ? "INSERT" : "UPDATE");
        change.setData(List.of(Map.of("id", "" + row, "version", "" + version, "note", "Größe \u00fc")));
        return JSON.toJSONBytes(change, SerializerFeature.WriteMapNullValue);
    }
}
