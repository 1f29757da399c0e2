import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import org.springframework.boot.Banner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.messaging.Message;
import org.springframework.messaging.support.MessageBuilder;

/** An application of Spring Cloud Stream that copies the orders of one tag with their names in capital letters, each `bad…` at
 *  the second try only, until its input is closed: `Stream NAME_SERVER SOURCE TARGET GROUP TAG`. */
@EnableAutoConfiguration
public class Stream {
    static final Map<String, Boolean> FAILED = new ConcurrentHashMap<>();

    @Bean
    public Function<Message<Map<String, String>>, Message<Map<String, String>>> capitals() {
        return message -> {
            String body = message.getPayload().get("name");
            if (body.startsWith("bad") && FAILED.put(body, true) == null) {
                throw new IllegalStateException("fails once: " + body);
            }
            return MessageBuilder.withPayload(Map.of("name", body.toUpperCase()))
                .setHeader("TAGS", "copied")
                .setHeader("KEYS", message.getHeaders().get("ROCKET_KEYS"))
                .setHeader("colour", message.getHeaders().get("colour"))
                .build();
        };
    }

    public static void main(String[] arguments) throws Exception {
        SpringApplication application = new SpringApplication(Stream.class);
        application.setBannerMode(Banner.Mode.OFF);
        application.setDefaultProperties(Map.of(
            "spring.cloud.function.definition", "capitals",
            "spring.cloud.stream.rocketmq.binder.name-server", arguments[0],
            "spring.cloud.stream.bindings.capitals-in-0.destination", arguments[1],
            "spring.cloud.stream.bindings.capitals-out-0.destination", arguments[2],
            "spring.cloud.stream.bindings.capitals-in-0.group", arguments[3],
            "spring.cloud.stream.bindings.capitals-in-0.consumer.max-attempts", "1",
            "spring.cloud.stream.rocketmq.bindings.capitals-in-0.consumer.subscription", arguments[4],
            "spring.cloud.stream.rocketmq.bindings.capitals-out-0.producer.group", arguments[3] + "-out",
            "spring.cloud.stream.rocketmq.bindings.capitals-out-0.producer.send-type", "Sync"));
        try (ConfigurableApplicationContext context = application.run()) {
            System.out.println("stream ready");
            while (System.in.read() >= 0) { }
        }
        System.exit(0);
    }
}
