import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Events as JSON: one object a line, written at once by any thread. */
final class Events {
    private static final PrintStream OUT =
        new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
    private final Map<String, Object> members = new LinkedHashMap<>();

    /** From now on only events go to standard output; what libraries print there goes to standard error. */
    static void takeStandardOutput() {
        System.setOut(System.err);
    }

    static Events event(String name) {
        return new Events().with("event", name);
    }

    static Events failure(String name, Throwable error) {
        int code = error instanceof MQBrokerException ? ((MQBrokerException) error).getResponseCode()
            : error instanceof MQClientException ? ((MQClientException) error).getResponseCode() : -1;
        return event(name).with("type", error.getClass().getSimpleName()).with("code", code)
            .with("message", String.valueOf(error.getMessage()))
            .with("cause", error.getCause() == null ? "" : String.valueOf(error.getCause().getMessage()));
    }

    static Events message(String event, MessageExt message) {
        return event(event).with("topic", message.getTopic()).with("queueId", message.getQueueId())
            .with("queueOffset", message.getQueueOffset()).with("msgId", message.getMsgId())
            .with("commitLogOffset", message.getCommitLogOffset()).with("storeSize", message.getStoreSize())
            .with("tags", message.getTags()).with("keys", message.getKeys()).with("flag", message.getFlag())
            .with("reconsumeTimes", message.getReconsumeTimes())
            .with("bornTimestamp", message.getBornTimestamp()).with("storeTimestamp", message.getStoreTimestamp())
            .with("properties", message.getProperties()).with("body", hex(message.getBody()));
    }

    static Events queue(String event, MessageQueue queue) {
        return event(event).with("topic", queue.getTopic()).with("broker", queue.getBrokerName())
            .with("queueId", queue.getQueueId());
    }

    Events with(String name, Object value) {
        members.put(name, value);
        return this;
    }

    void emit() {
        StringBuilder line = new StringBuilder();
        write(line, members);
        synchronized (OUT) {
            OUT.println(line);
            OUT.flush();
        }
    }

    private static void write(StringBuilder out, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else if (value instanceof Map) {
            String comma = "{";
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                out.append(comma);
                text(out, String.valueOf(entry.getKey()));
                write(out.append(':'), entry.getValue());
                comma = ",";
            }
            out.append(comma.equals("{") ? "{}" : "}");
        } else if (value instanceof List) {
            String comma = "[";
            for (Object item : (List<?>) value) {
                write(out.append(comma), item);
                comma = ",";
            }
            out.append(comma.equals("[") ? "[]" : "]");
        } else {
            text(out, value.toString());
        }
    }

    private static void text(StringBuilder out, String text) {
        out.append('"');
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }

    private static String hex(byte[] bytes) {
        StringBuilder hex = new StringBuilder();
        for (byte b : bytes == null ? new byte[0] : bytes) {
            hex.append(Character.forDigit(b >> 4 & 15, 16)).append(Character.forDigit(b & 15, 16));
        }
        return hex.toString();
    }
}
