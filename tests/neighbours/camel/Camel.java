import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.main.Main;

/** A route of Apache Camel from topic to topic in capital letters, until its input is closed: `Camel NAME_SERVER
 *  SOURCE TARGET GROUP TAG`. */
public class Camel {
    public static void main(String[] arguments) throws Exception {
        String server = "namesrvAddr=" + arguments[0], group = arguments[3];
        Main main = new Main();
        main.configure().addRoutesBuilder(new RouteBuilder() {
            @Override
            public void configure() {
                from("rocketmq:" + arguments[1] + "?" + server + "&consumerGroup=" + group + "&subscribeTags=" + arguments[4])
                    .process(exchange -> exchange.getMessage().setBody(
                        exchange.getMessage().getBody(String.class).toUpperCase()))
                    .setHeader("CamelRockerMQOverrideTag", constant("copied"))
                    .setHeader("CamelRockerMQOverrideMessageKey", simple("${header.CamelRockerMQKey}"))
                    .to("rocketmq:" + arguments[2] + "?" + server + "&producerGroup=" + group + "-out&waitForSendResult=true");
            }
        });
        main.start();
        System.out.println("camel ready");
        while (System.in.read() >= 0) { }
        main.stop();
        System.exit(0);
    }
}
