import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** What 5.x calls otherwise, and `mqadmin`, which only this class path has. */
final class Version {
    static final String NAME = "5.5.0";

    private Version() {
    }

    static void setModel(DefaultMQPushConsumer consumer, String model) {
        consumer.setMessageModel(MessageModel.valueOf(model));
    }

    static boolean run(String operation, Parameters parameters, String nameServer) {
        if (!operation.equals("mqadmin")) {
            return false;
        }
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
            MQAdminStartup.main0(arguments.toArray(new String[0]), null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        Events.event("output").with("text", printed.toString(StandardCharsets.UTF_8)).emit();
        return true;
    }
}
