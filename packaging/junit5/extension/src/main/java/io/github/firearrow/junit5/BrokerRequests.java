package io.github.firearrow.junit5;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.exception.RemotingCommandException;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * The requests that the tests need, one connection each. A client takes longer to start than the broker, and its classes
 * for administration differ between 4.9 and 5.x.
 */
final class BrokerRequests {
    private static final int PULL_MESSAGE = 11;
    private static final int UPDATE_AND_CREATE_TOPIC = 17;
    private static final int GET_ROUTEINFO_BY_TOPIC = 105;
    private static final int GET_TOPIC_CONFIG = 351;
    private static final int SUCCESS = 0;
    private static final int TOPIC_NOT_EXIST = 17;
    private static final int PULL_NOT_FOUND = 19;
    private static final int READ_AND_WRITE = 6;
    private static final int WITH_SUBSCRIPTION = 1 << 2;
    private static final int TIMEOUT_MS = 10_000;
    private static final int ROUTE_POLL_MS = 10;

    private final BrokerProcess broker;

    BrokerRequests(BrokerProcess broker) {
        this.broker = broker;
    }

    /** Create the topic and wait until the name server has its route. IllegalStateException: it was refused. */
    void createTopic(String name, int queues) {
        Map<String, String> fields = new HashMap<>();
        fields.put("topic", name);
        fields.put("defaultTopic", "TBW102");
        fields.put("readQueueNums", String.valueOf(queues));
        fields.put("writeQueueNums", String.valueOf(queues));
        fields.put("perm", String.valueOf(READ_AND_WRITE));
        fields.put("topicFilterType", "SINGLE_TAG");
        fields.put("topicSysFlag", "0");
        fields.put("order", "false");
        check(ask(broker.address, UPDATE_AND_CREATE_TOPIC, fields), "topic " + name);
        long deadline = System.nanoTime() + TIMEOUT_MS * 1_000_000L;
        RemotingCommand route = route(name);
        while (route.getCode() != SUCCESS && System.nanoTime() < deadline) {
            pause();
            route = route(name);
        }
        check(route, "topic " + name);
    }

    private RemotingCommand route(String topic) {
        return ask(broker.nameServer, GET_ROUTEINFO_BY_TOPIC, Map.of("topic", topic));
    }

    private static void pause() {
        try {
            Thread.sleep(ROUTE_POLL_MS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while waiting for a route", error);
        }
    }

    /** In the order of the commit log; empty if there is no such topic. */
    List<MessageExt> messagesIn(String topic) {
        RemotingCommand answer = ask(broker.address, GET_TOPIC_CONFIG, Map.of("topic", topic));
        if (answer.getCode() == TOPIC_NOT_EXIST) {
            return List.of();
        }
        check(answer, "topic " + topic);
        TopicConfig config = RemotingSerializable.decode(answer.getBody(), TopicConfig.class);
        List<MessageExt> found = new ArrayList<>();
        for (int queue = 0; queue < config.getReadQueueNums(); queue++) {
            readQueue(topic, queue, found);
        }
        found.sort(Comparator.comparingLong(MessageExt::getCommitLogOffset));
        return found;
    }

    private void readQueue(String topic, int queue, List<MessageExt> found) {
        long offset = 0;
        while (true) {
            RemotingCommand answer = ask(broker.address, PULL_MESSAGE, pullFields(topic, queue, offset));
            if (answer.getCode() == PULL_NOT_FOUND) {
                return;
            }
            check(answer, "queue " + queue + " of topic " + topic);
            found.addAll(MessageDecoder.decodes(ByteBuffer.wrap(answer.getBody())));
            offset = Long.parseLong(answer.getExtFields().get("nextBeginOffset"));
        }
    }

    private static Map<String, String> pullFields(String topic, int queue, long offset) {
        Map<String, String> fields = new HashMap<>();
        fields.put("consumerGroup", "firearrow-junit5");
        fields.put("topic", topic);
        fields.put("queueId", String.valueOf(queue));
        fields.put("queueOffset", String.valueOf(offset));
        fields.put("maxMsgNums", "32");
        fields.put("sysFlag", String.valueOf(WITH_SUBSCRIPTION));
        fields.put("commitOffset", "0");
        fields.put("suspendTimeoutMillis", "0");
        fields.put("subscription", "*");
        fields.put("subVersion", "0");
        fields.put("expressionType", "TAG");
        return fields;
    }

    private static void check(RemotingCommand answer, String what) {
        if (answer.getCode() != SUCCESS) {
            throw new IllegalStateException(
                    what + ": the broker answered " + answer.getCode() + " " + answer.getRemark());
        }
    }

    private static RemotingCommand ask(String address, int code, Map<String, String> fields) {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        request.setExtFields(new HashMap<>(fields));
        int colon = address.lastIndexOf(':');
        int port = Integer.parseInt(address.substring(colon + 1));
        try (Socket socket = new Socket(address.substring(0, colon), port)) {
            socket.setSoTimeout(TIMEOUT_MS);
            ByteBuffer frame = request.encode();
            socket.getOutputStream().write(frame.array(), frame.arrayOffset(), frame.limit());
            DataInputStream input = new DataInputStream(socket.getInputStream());
            return RemotingCommand.decode(ByteBuffer.wrap(input.readNBytes(input.readInt())));
        } catch (IOException error) {
            throw new UncheckedIOException("the broker at " + address + " does not answer", error);
        } catch (RemotingCommandException error) {
            throw new IllegalStateException("the broker's answer cannot be read", error);
        }
    }
}
