import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** Apache's Java client under load: WORKLOAD NAME_SERVER TOPIC MESSAGES; prints what bench.client_firearrow prints. */
public final class ClientBench {
    static final int BATCH = 200, DEPTH = 2048;
    static long wall, cpu;

    static Message large(String topic) {
        return new Message(topic, new byte[1024]);
    }

    static Message small(String topic) {
        return new Message(topic, new byte[128]);
    }

    static void start() {
        cpu = ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
        wall = System.nanoTime();
    }

    static void stop() {
        wall = System.nanoTime() - wall;
        cpu = ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() - cpu;
    }

    static void send(DefaultMQProducer producer, String topic, int messages) throws Exception {
        Semaphore inFlight = new Semaphore(DEPTH);
        AtomicInteger failed = new AtomicInteger();
        SendCallback callback = new SendCallback() {
            public void onSuccess(SendResult result) {
                inFlight.release();
            }

            public void onException(Throwable error) {
                failed.incrementAndGet();
                inFlight.release();
            }
        };
        for (int n = 0; n < messages; n++) {
            inFlight.acquire();
            producer.send(small(topic), callback);
        }
        inFlight.acquire(DEPTH);
        if (failed.get() > 0) {
            throw new IllegalStateException(failed + " sends failed");
        }
    }

    static void batch(DefaultMQProducer producer, String topic, int messages, boolean large) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int t = 0; t < 4; t++) {
            threads.add(new Thread(() -> {
                for (int n = 0; n < messages / BATCH / 4; n++) {
                    List<Message> batch = new ArrayList<>();
                    for (int m = 0; m < BATCH; m++) {
                        batch.add(large ? large(topic) : small(topic));
                    }
                    try {
                        producer.send(batch);
                    } catch (Exception error) {
                        throw new IllegalStateException(error);
                    }
                }
            }));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    static void push(String nameServer, String topic, int messages, int batchSize) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench-java-" + System.nanoTime());
        CountDownLatch finished = new CountDownLatch(1);
        AtomicInteger left = new AtomicInteger(messages);
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(batchSize);
        consumer.setPullThresholdForQueue(65535);
        consumer.setConsumeConcurrentlyMaxSpan(65535);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (received, context) -> {
            int before = left.getAndAdd(-received.size());
            if (before == messages) {
                start();
            }
            if (before > 0 && before <= received.size()) {
                stop();
                finished.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        finished.await();
        consumer.shutdown();
    }

    public static void main(String[] words) throws Exception {
        String workload = words[0], topic = words[2];
        int messages = Integer.parseInt(words[3]);
        if (workload.startsWith("push")) {
            push(words[1], topic, messages, workload.equals("push") ? 32 : 1);
        } else {
            DefaultMQProducer producer = new DefaultMQProducer("bench-java");
            producer.setNamesrvAddr(words[1]);
            producer.setSendMsgTimeout(10000);
            producer.start();
            for (int n = 0; n < 2000; n++) {
                producer.send(small(topic));
            }
            producer.setAutoBatch(workload.equals("auto"));
            start();
            if (workload.equals("send") || workload.equals("auto")) {
                send(producer, topic, messages);
            } else if (workload.startsWith("batch")) {
                batch(producer, topic, messages, workload.equals("batch-large"));
            } else {
                for (int n = 0; n < messages; n++) {
                    producer.send(small(topic));
                }
            }
            stop();
            producer.shutdown();
        }
        System.out.printf("{\"rate\": %f, \"cpu_us\": %f}%n", messages * 1e9 / wall, cpu / 1e3 / messages);
        System.exit(0);
    }
}
