import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Two senders, each a thread with one message in flight. An id is `sender.number.try`; what failed is sent again under
 * a new one. `one` sends each message once, to the queue it chooses; `repeated` leaves both to the client.
 */
final class LongSenders {
    private static final int QUEUES = 4;
    private static final int LARGE_BYTES = 20_000;
    private static final int MANY_BYTES = 900;
    private static final int PAUSE_MS = 50;
    private final String name;
    private final double paceMs;
    private final DefaultMQProducer once;
    private final DefaultMQProducer often;
    private final Random[] draws;
    private final int[] numbers = new int[2];
    private final List<Thread> threads = new ArrayList<>();
    private volatile boolean resting;

    LongSenders(String name, String nameServer, long seed, double paceSeconds) {
        this.name = name;
        this.paceMs = paceSeconds * 1000;
        this.draws = new Random[] {new Random(seed), new Random(seed + 1)};
        this.once = producer(name + "-once", nameServer, 0);
        this.often = producer(name + "-often", nameServer, 2);
    }

    private static DefaultMQProducer producer(String group, String nameServer, int retries) {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName(group);
        producer.setPollNameServerInterval(500);
        producer.setRetryTimesWhenSendFailed(retries);
        return producer;
    }

    void load() throws MQClientException {
        if (numbers[0] == 0) {
            once.start();
            often.start();
        }
        resting = false;
        threads.clear();
        threads.add(new Thread(() -> run(0, name + "-one", once, 1)));
        threads.add(new Thread(() -> run(1, name + "-repeated", often, 3)));
        threads.forEach(Thread::start);
    }

    void rest() throws InterruptedException {
        resting = true;
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private void run(int which, String sender, DefaultMQProducer producer, int copies) {
        while (!resting) {
            int number = ++numbers[which];
            int attempt = 0;
            while (!send(sender + "." + number + "." + attempt++, number, producer, copies, draws[which]) && !resting) {
                pause(PAUSE_MS);
            }
            pause((long) (draws[which].nextDouble() * paceMs));
        }
    }

    private static boolean send(String id, int number, DefaultMQProducer producer, int copies, Random draw) {
        byte[] body = body(id, draw);
        Events.event("send").with("id", id).with("topic", LongHistory.PLAIN).with("crc", crc(body))
            .with("size", body.length).with("copies", copies).emit();
        try {
            Message message = new Message(LongHistory.PLAIN, body);
            SendResult result = copies > 1 ? producer.send(message)
                : producer.send(message, (queues, sent, queue) -> queues.get((Integer) queue), number % QUEUES);
            Events.event("sent").with("id", id).with("status", result.getSendStatus())
                .with("queue", result.getMessageQueue().getQueueId()).with("offset", result.getQueueOffset()).emit();
            return true;
        } catch (Exception error) {
            Events.event("failed").with("id", id).with("why", String.valueOf(error)).emit();
            return false;
        }
    }

    /** `id|` and filler; one in fifty is large enough to be compressed. */
    private static byte[] body(String id, Random draw) {
        int size = draw.nextInt(50) == 0 ? LARGE_BYTES : draw.nextInt(MANY_BYTES);
        String filler = String.format("%08x", draw.nextInt()).repeat(size / 8);
        return (id + "|" + filler).getBytes(StandardCharsets.US_ASCII);
    }

    static long crc(byte[] body) {
        CRC32 crc = new CRC32();
        crc.update(body);
        return crc.getValue();
    }

    private static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
