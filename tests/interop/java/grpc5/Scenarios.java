import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Apache's client of 5.x: each argument after the endpoints is `scenario=topic`, whose group is the topic and `-g`. Prints
 * `passed scenario` or `failed scenario: why` for each. The variables INTEROP_ACCESS_KEY, INTEROP_SECRET_KEY and
 * INTEROP_TLS choose how it connects.
 */
public class Scenarios {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final long WAIT_MS = 30_000;
    static ClientConfiguration configuration;

    public static void main(String[] arguments) throws Exception {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(arguments[0])
            .setRequestTimeout(Duration.ofSeconds(10)).enableSsl(System.getenv("INTEROP_TLS") != null);
        if (System.getenv("INTEROP_ACCESS_KEY") != null) {
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(
                System.getenv("INTEROP_ACCESS_KEY"), System.getenv("INTEROP_SECRET_KEY")));
        }
        configuration = builder.build();
        List<Thread> running = new ArrayList<>();
        for (int n = 1; n < arguments.length; n++) {
            String[] words = arguments[n].split("=");
            Thread thread = new Thread(() -> report(words[0], words[1]));
            thread.start();
            running.add(thread);
        }
        for (Thread thread : running) {
            thread.join();
        }
        System.exit(0);
    }

    static void report(String scenario, String topic) {
        try {
            run(scenario, topic);
            System.out.println("passed " + scenario);
        } catch (Throwable error) {
            System.out.println("failed " + scenario + ": " + error.toString().replace('\n', ' '));
            error.printStackTrace();
        }
    }

    static void run(String scenario, String topic) throws Exception {
        switch (scenario) {
            case "normal": normal(topic); break;
            case "async": async(topic); break;
            case "simple": simple(topic); break;
            case "invisible": invisible(topic); break;
            case "fifo": fifo(topic); break;
            case "delay": delay(topic); break;
            case "recall": recall(topic); break;
            case "transaction": transaction(topic); break;
            case "orphan": orphan(topic); break;
            case "retry": retry(topic); break;
            case "tag": filter(topic, new FilterExpression("a || c"), "a0 c2"); break;
            case "sql": filter(topic, new FilterExpression("n > 0", FilterExpressionType.SQL92), "b1 c2"); break;
            case "large": large(topic); break;
            case "priority": priority(topic); break;
            case "lite": lite(topic); break;
            case "wrong-type": wrongType(topic); break;
            case "refused": refused(topic); break;
            default: throw new IllegalArgumentException(scenario);
        }
    }

    // ---- what the scenarios share ----

    static Producer producer(String topic) throws Exception {
        return PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build();
    }

    static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static PushConsumer push(String topic, FilterExpression filter, MessageListener listener) throws Exception {
        return PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(topic + "-g")
            .setSubscriptionExpressions(Collections.singletonMap(topic, filter)).setMessageListener(listener).build();
    }

    static SimpleConsumer simpleConsumer(String topic) throws Exception {
        return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(topic + "-g")
            .setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Collections.singletonMap(topic, new FilterExpression())).build();
    }

    static String body(MessageView view) {
        return StandardCharsets.UTF_8.decode(view.getBody()).toString();
    }

    static void until(BooleanSupplier condition, String what) throws Exception {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (!condition.getAsBoolean()) {
            check(System.currentTimeMillis() < deadline, what);
            Thread.sleep(20);
        }
    }

    static void check(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    static MessageView one(SimpleConsumer consumer) throws Exception {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (System.currentTimeMillis() < deadline) {
            List<MessageView> found = consumer.receive(1, Duration.ofSeconds(10));
            if (!found.isEmpty()) {
                return found.get(0);
            }
        }
        throw new AssertionError("nothing was received");
    }

    // ---- the scenarios ----

    static void normal(String topic) throws Exception {
        Map<String, MessageView> seen = new ConcurrentHashMap<>();
        try (PushConsumer consumer = push(topic, new FilterExpression(), view -> {
            seen.put(body(view), view);
            return ConsumeResult.SUCCESS;
        }); Producer producer = producer(topic)) {
            for (int n = 0; n < 20; n++) {
                producer.send(message(topic, "body" + n).setTag("tag").setKeys("k" + n, "all")
                    .addProperty("n", "" + n).build());
            }
            until(() -> seen.size() == 20, "20 messages, but " + seen.size());
            MessageView view = seen.get("body7");
            check(view.getTag().get().equals("tag") && view.getKeys().contains("k7"), "tag and keys");
            check(view.getProperties().equals(Collections.singletonMap("n", "7")), "" + view.getProperties());
            check(view.getDeliveryAttempt() == 1, "attempt " + view.getDeliveryAttempt());
        }
    }

    static void async(String topic) throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        try (PushConsumer consumer = push(topic, new FilterExpression(), view -> {
            seen.add(body(view));
            return ConsumeResult.SUCCESS;
        }); Producer producer = producer(topic)) {
            List<CompletableFuture<SendReceipt>> sent = new ArrayList<>();
            for (int n = 0; n < 500; n++) {
                sent.add(producer.sendAsync(message(topic, "body" + n).build()));
            }
            for (CompletableFuture<SendReceipt> future : sent) {
                future.get();
            }
            until(() -> seen.size() == 500, "500 messages, but " + seen.size());
        }
    }

    static void simple(String topic) throws Exception {
        try (SimpleConsumer consumer = simpleConsumer(topic); Producer producer = producer(topic)) {
            for (int n = 0; n < 5; n++) {
                producer.send(message(topic, "body" + n).build());
            }
            Set<String> seen = ConcurrentHashMap.newKeySet();
            until(() -> {
                try {
                    for (MessageView view : consumer.receive(16, Duration.ofSeconds(15))) {
                        seen.add(body(view));
                        consumer.ack(view);
                    }
                } catch (Exception error) {
                    throw new AssertionError(error);
                }
                return seen.size() == 5;
            }, "5 messages");
        }
    }

    static void invisible(String topic) throws Exception {
        try (SimpleConsumer consumer = simpleConsumer(topic); Producer producer = producer(topic)) {
            producer.send(message(topic, "again").build());
            MessageView first = one(consumer);
            consumer.changeInvisibleDuration(first, Duration.ofMillis(500));
            MessageView second = one(consumer);
            check(second.getMessageId().equals(first.getMessageId()), "another message");
            check(second.getDeliveryAttempt() == 2, "attempt " + second.getDeliveryAttempt());
            consumer.ack(second);
        }
    }

    static void fifo(String topic) throws Exception {
        ConcurrentLinkedQueue<String> seen = new ConcurrentLinkedQueue<>();
        AtomicInteger failures = new AtomicInteger(1);
        try (PushConsumer consumer = push(topic, new FilterExpression(), view -> {
            if (body(view).equals("3") && failures.getAndDecrement() > 0) {
                return ConsumeResult.FAILURE;
            }
            seen.add(body(view));
            return ConsumeResult.SUCCESS;
        }); Producer producer = producer(topic)) {
            StringBuilder expected = new StringBuilder();
            for (int n = 0; n < 10; n++) {
                producer.send(message(topic, "" + n).setMessageGroup("one").build());
                expected.append(n);
            }
            until(() -> seen.size() == 10, "10 messages, but " + seen);
            check(String.join("", seen).equals(expected.toString()), "order " + seen);
        }
    }

    static void delay(String topic) throws Exception {
        long due = System.currentTimeMillis() + 3000;
        List<Long> arrived = Collections.synchronizedList(new ArrayList<>());
        try (PushConsumer consumer = push(topic, new FilterExpression(), view -> {
            arrived.add(System.currentTimeMillis());
            return ConsumeResult.SUCCESS;
        }); Producer producer = producer(topic)) {
            producer.send(message(topic, "later").setDeliveryTimestamp(due).build());
            until(() -> !arrived.isEmpty(), "nothing arrived");
            check(arrived.get(0) >= due - 200, "too early by " + (due - arrived.get(0)));
        }
    }

    static void recall(String topic) throws Exception {
        AtomicInteger arrived = new AtomicInteger();
        try (PushConsumer consumer = push(topic, new FilterExpression(), view -> {
            arrived.incrementAndGet();
            return ConsumeResult.SUCCESS;
        }); Producer producer = producer(topic)) {
            long due = System.currentTimeMillis() + 4000; // a start may take seconds on a busy machine
            SendReceipt receipt = producer.send(message(topic, "never").setDeliveryTimestamp(due).build());
            producer.recallMessage(topic, receipt.getRecallHandle());
            Thread.sleep(due + 2000 - System.currentTimeMillis());
            check(arrived.get() == 0, "it arrived");
        }
    }

    static void transaction(String topic) throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        ProducerBuilder builder = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
            .setTransactionChecker(view -> TransactionResolution.UNKNOWN);
        try (PushConsumer consumer = push(topic, new FilterExpression(), view -> {
            seen.add(body(view));
            return ConsumeResult.SUCCESS;
        }); Producer producer = builder.build()) {
            for (int n = 0; n < 4; n++) {
                Transaction transaction = producer.beginTransaction();
                producer.send(message(topic, "" + n).build(), transaction);
                if (n % 2 == 0) {
                    transaction.commit();
                } else {
                    transaction.rollback();
                }
            }
            until(() -> seen.size() == 2, "2 messages, but " + seen);
            Thread.sleep(1000);
            check(seen.contains("0") && seen.contains("2") && seen.size() == 2, "" + seen);
        }
    }

    static void orphan(String topic) throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        Set<String> asked = ConcurrentHashMap.newKeySet();
        ProducerBuilder builder = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
            .setTransactionChecker(view -> {
                asked.add(body(view));
                return TransactionResolution.COMMIT;
            });
        try (PushConsumer consumer = push(topic, new FilterExpression(), view -> {
            seen.add(body(view));
            return ConsumeResult.SUCCESS;
        }); Producer producer = builder.build()) {
            producer.send(message(topic, "orphan").build(), producer.beginTransaction());
            until(() -> seen.contains("orphan"), "asked about " + asked + ", received " + seen);
        }
    }

    static void retry(String topic) throws Exception {
        List<Integer> attempts = Collections.synchronizedList(new ArrayList<>());
        try (PushConsumer consumer = push(topic, new FilterExpression(), view -> {
            attempts.add(view.getDeliveryAttempt());
            return attempts.size() < 2 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        }); Producer producer = producer(topic)) {
            producer.send(message(topic, "twice").build());
            until(() -> attempts.size() == 2, "attempts " + attempts);
            check(attempts.get(0) == 1 && attempts.get(1) == 2, "" + attempts);
        }
    }

    static void filter(String topic, FilterExpression expression, String expected) throws Exception {
        Set<String> seen = ConcurrentHashMap.newKeySet();
        try (PushConsumer consumer = push(topic, expression, view -> {
            seen.add(body(view));
            return ConsumeResult.SUCCESS;
        }); Producer producer = producer(topic)) {
            for (int n = 0; n < 3; n++) {
                String tag = "abc".substring(n, n + 1);
                producer.send(message(topic, tag + n).setTag(tag).addProperty("n", "" + n).build());
            }
            until(() -> seen.size() == 2, "2 messages, but " + seen);
            check(String.join(" ", new java.util.TreeSet<>(seen)).equals(expected), "" + seen);
        }
    }

    static void large(String topic) throws Exception {
        byte[] body = new byte[4 * 1024 * 1024];
        new java.util.Random(1).nextBytes(body);
        try (SimpleConsumer consumer = simpleConsumer(topic); Producer producer = producer(topic)) {
            producer.send(PROVIDER.newMessageBuilder().setTopic(topic).setBody(body).build());
            MessageView view = one(consumer);
            byte[] received = new byte[view.getBody().remaining()];
            view.getBody().get(received);
            check(java.util.Arrays.equals(received, body), "another body");
            consumer.ack(view);
        }
    }

    static void priority(String topic) throws Exception {
        try (SimpleConsumer consumer = simpleConsumer(topic); Producer producer = producer(topic)) {
            producer.send(message(topic, "p").setPriority(2).build());
            MessageView view = one(consumer);
            check(view.getPriority().get() == 2, "priority " + view.getPriority());
            consumer.ack(view);
        }
    }

    /** Lite topics: those that are subscribed come, each in order; one that fails once comes again. */
    static void lite(String topic) throws Exception {
        Map<String, List<String>> seen = new ConcurrentHashMap<>();
        AtomicInteger failed = new AtomicInteger();
        try (LitePushConsumer consumer = PROVIDER.newLitePushConsumerBuilder().setClientConfiguration(configuration)
            .bindTopic(topic).setConsumerGroup(topic + "-g").setMessageListener(view -> {
                if (body(view).equals("1") && failed.getAndIncrement() == 0) {
                    return ConsumeResult.FAILURE;
                }
                seen.computeIfAbsent(view.getLiteTopic().get(), name -> Collections.synchronizedList(new ArrayList<>()))
                    .add(body(view));
                return ConsumeResult.SUCCESS;
            }).build(); Producer producer = producer(topic)) {
            consumer.subscribeLite("one");
            consumer.subscribeLite("two");
            for (String name : new String[] {"one", "two", "three"}) {
                for (int n = 0; n < 3; n++) {
                    producer.send(message(topic, Integer.toString(n)).setLiteTopic(name).build());
                }
            }
            until(() -> seen.values().stream().mapToInt(List::size).sum() == 6, "6 messages: " + seen);
            check(seen.get("one").equals(List.of("0", "1", "2")) && seen.get("two").equals(List.of("0", "1", "2")),
                "in order: " + seen);
            check(!seen.containsKey("three"), "not subscribed: " + seen);
            consumer.unsubscribeLite("two");
            consumer.subscribeLite("three");
            producer.send(message(topic, "3").setLiteTopic("two").build());
            producer.send(message(topic, "3").setLiteTopic("three").build());
            until(() -> seen.containsKey("three") && seen.get("three").size() == 4, "of three: " + seen);
            check(seen.get("two").size() == 3, "unsubscribed: " + seen);
        }
    }

    static void wrongType(String topic) throws Exception {
        try (Producer producer = producer(topic)) {
            producer.send(message(topic, "normal").build());
        } catch (Exception error) {
            check(error.toString().contains("message type"), error.toString());
            return;
        }
        throw new AssertionError("it was sent");
    }

    /** Its producer does not start: there is no such topic, or the client may not use it. */
    static void refused(String topic) throws Exception {
        try (Producer producer = producer(topic)) {
            throw new AssertionError("it has started");
        } catch (IllegalStateException error) {
            check(error.toString().contains("FAILED"), error.toString());
        }
    }
}
