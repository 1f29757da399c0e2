import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.apache.rocketmq.spring.support.RocketMQHeaders;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Import;
import org.springframework.messaging.support.MessageBuilder;

/** Sends from many threads by a RocketMQTemplate, and receives all of it by a listener, as an application of Spring
 *  Boot does: `SpringLoad NAME_SERVER TOPIC GROUP THREADS EACH`. */
@EnableAutoConfiguration
@Import(SpringLoad.Listener.class)
public class SpringLoad {
    static final Set<String> RECEIVED = ConcurrentHashMap.newKeySet();
    static final String LARGE = "compresses well ".repeat(600);

    @RocketMQMessageListener(topic = "${load.topic}", consumerGroup = "${load.group}-listener")
    static class Listener implements RocketMQListener<MessageExt> {
        @Override
        public void onMessage(MessageExt message) {
            RECEIVED.add(message.getMsgId());
        }
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int threads = Integer.parseInt(arguments[3]);
        int each = Integer.parseInt(arguments[4]);
        SpringApplication application = new SpringApplication(SpringLoad.class);
        application.setDefaultProperties(Map.of(
            "rocketmq.name-server", arguments[0], "rocketmq.producer.group", arguments[2],
            "load.topic", topic, "load.group", arguments[2], "spring.main.banner-mode", "off"));
        AtomicInteger sent = new AtomicInteger();
        try (ConfigurableApplicationContext context = application.run()) {
            RocketMQTemplate template = context.getBean(RocketMQTemplate.class);
            ExecutorService pool = Executors.newFixedThreadPool(threads);
            for (int thread = 0; thread < threads; thread++) {
                Random dice = new Random(thread);
                pool.submit(() -> {
                    for (int n = 0; n < each; n++) {
                        SendResult result = send(template, topic, dice, n);
                        sent.addAndGet(result.getSendStatus() == SendStatus.SEND_OK ? 1 : 0);
                    }
                });
            }
            pool.shutdown();
            pool.awaitTermination(60, TimeUnit.SECONDS);
            for (int n = 0; n < 600 && RECEIVED.size() < threads * each; n++) {
                Thread.sleep(100);
            }
        }
        System.out.println("{\"sent\": " + sent + ", \"received\": " + RECEIVED.size() + "}");
    }

    /** A message with some of: a tag, a key, up to three properties, a body that is compressed. */
    private static SendResult send(RocketMQTemplate template, String topic, Random dice, int n) {
        String body = n % 10 == 0 ? LARGE : "body " + n;
        MessageBuilder<String> message = MessageBuilder.withPayload(body);
        if (dice.nextBoolean()) {
            message.setHeader(RocketMQHeaders.KEYS, "key" + n);
        }
        for (int header = dice.nextInt(4); header > 0; header--) {
            message.setHeader("p" + dice.nextInt(4), "value " + dice.nextDouble());
        }
        String destination = dice.nextInt(5) == 0 ? topic : topic + ":tag" + n % 3;
        return template.syncSend(destination, message.build());
    }
}
