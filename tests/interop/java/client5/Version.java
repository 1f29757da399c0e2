import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** What has another name in 5.x, and what only this class path has: `mqadmin`, pops, timers, priorities. */
final class Version {
    static final String NAME = "5.5.0";

    private Version() {
    }

    static void setModel(DefaultMQPushConsumer consumer, String model) {
        consumer.setMessageModel(MessageModel.valueOf(model));
    }

    static void pop(DefaultMQPushConsumer consumer) {
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(10_000);
    }

    static void compress(DefaultMQProducer producer, String type) {
        producer.setCompressType(CompressionType.of(type));
    }

    /** `delaySeconds`, `delayMs`, `deliverInMs` from now, or `priority`. */
    static void prepare(Message message, Parameters parameters) {
        if (parameters.number("delaySeconds", 0) != 0) {
            message.setDelayTimeSec(parameters.number("delaySeconds", 0));
        }
        if (parameters.number("delayMs", 0) != 0) {
            message.setDelayTimeMs(parameters.number("delayMs", 0));
        }
        if (parameters.number("deliverInMs", 0) != 0) {
            message.setDeliverTimeMs(System.currentTimeMillis() + parameters.number("deliverInMs", 0));
        }
        if (parameters.number("priority", -1) >= 0) {
            message.setPriority((int) parameters.number("priority", -1));
        }
    }

    static Events add(SendResult result, Events event) {
        return event.with("recallHandle", result.getRecallHandle());
    }

    static boolean run(String operation, Parameters parameters, String nameServer, Producers producers)
        throws Exception {
        switch (operation) {
            case "mqadmin":
                administer(parameters, nameServer);
                return true;
            case "recall":
                Events.event("recalled").with("msgId", producers.producer(parameters)
                    .recallMessage(parameters.text("topic"), parameters.text("handle"))).emit();
                return true;
            default:
                return false;
        }
    }

    private static void administer(Parameters parameters, String nameServer) {
        List<String> arguments = new ArrayList<>(parameters.all("argument"));
        arguments.add("-n");
        arguments.add(nameServer);
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(capture);
        System.setErr(capture);
        try {
            MQAdminStartup.main0(arguments.toArray(new String[0]), Keys.hook());
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        Events.event("output").with("text", printed.toString(StandardCharsets.UTF_8)).emit();
    }
}
