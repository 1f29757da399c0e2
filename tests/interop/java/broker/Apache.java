import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.namesrv.NamesrvStartup;

/**
 * Apache's name server and broker in one process: `Apache NAMESRV.CONF BROKER.CONF`; stops when its input ends. At a
 * `t` in it a slave copies its master's tables, at any other byte the broker registers: at its start 5.5 does not reach
 * the name server, and tries again 10 s later.
 */
public final class Apache {
    public static void main(String[] args) throws Exception {
        NamesrvStartup.main0(new String[] {"-c", args[0]});
        BrokerController broker = BrokerStartup.createBrokerController(new String[] {"-c", args[1]});
        if (BrokerStartup.start(broker) == null) {
            System.exit(1);
        }
        System.out.println("apache ready");
        for (int what = System.in.read(); what >= 0; what = System.in.read()) {
            if (what == 't') {
                broker.getSlaveSynchronize().syncAll();
            } else {
                broker.registerBrokerAll(true, false, true);
            }
        }
        Haste.begin(Thread.currentThread());
        broker.shutdown();
        Runtime.getRuntime().halt(0); // hooks would shut everything down a second time
    }
}
