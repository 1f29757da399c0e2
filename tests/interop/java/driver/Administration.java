import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Apache's `mqadmin` in this process. 4.x needs `conf/logback_tools.xml`, and has its keys from `conf/tools.yml`. */
final class Administration {
    private Administration() {
    }

    /** What it prints. */
    static String run(Parameters parameters, String nameServer) {
        List<String> arguments = new ArrayList<>(parameters.all("argument"));
        arguments.add("-n");
        arguments.add(parameters.text("nameServer", nameServer));
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(capture);
        System.setErr(capture);
        try {
            MQAdminStartup.main0(arguments.toArray(new String[0]), Keys.hook(parameters));
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }
}
