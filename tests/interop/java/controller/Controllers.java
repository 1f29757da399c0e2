import org.apache.rocketmq.namesrv.NamesrvStartup;

/** Apache's name server with a controller in it: `Controllers NAMESRV.CONF`; ends with its input. */
public final class Controllers {
    public static void main(String[] args) throws Exception {
        NamesrvStartup.main0(new String[] {"-c", args[0]});
        if (NamesrvStartup.controllerManagerMain() == null) {
            System.exit(1);
        }
        System.out.println("controllers ready");
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }
}
