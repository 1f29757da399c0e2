import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * The Java client of a history: senders and consumers that read commands on standard input and write one JSON object a
 * line on standard output for each event. The events are listed in `tests/history/events.py`; `Events` is the
 * interoperation driver's. Arguments: NAME NAME_SERVER SEED PACE_S.
 */
public final class LongHistory {
    static final String PLAIN = "Plain";

    public static void main(String[] args) throws Exception {
        Events.takeStandardOutput();
        LongSenders senders =
            new LongSenders(args[0], args[1], Long.parseLong(args[2]), Double.parseDouble(args[3]));
        LongConsumers consumers = new LongConsumers(args[0], args[1]);
        consumers.start();
        done("start");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            switch (order) {
                case "load":
                    senders.load();
                    break;
                case "rest":
                    senders.rest();
                    break;
                case "rejoin":
                    consumers.close();
                    consumers.start();
                    break;
                default:
                    throw new IllegalArgumentException("no order " + order + ": say load, rest or rejoin");
            }
            done(order);
        }
        consumers.close();
        System.exit(0);
    }

    private static void done(String what) {
        Events.event("done").with("what", what).emit();
    }
}
