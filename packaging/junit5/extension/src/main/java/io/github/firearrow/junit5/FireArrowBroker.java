package io.github.firearrow.junit5;

import java.nio.file.Path;
import java.time.Duration;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.common.message.MessageExt;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * A real broker on free ports with a temporary store, for the tests of a class or for a single test.
 *
 * <p>In a static field with {@code @RegisterExtension} it runs for all tests of the class, in an instance field for one
 * test. With {@code @ExtendWith(FireArrowBroker.class)} on a class or a method, a parameter of this type gets it.
 * Without JUnit, call {@link #start} and {@link #close}. Any thread.
 *
 * <p>The command {@code firearrow} is looked up on PATH, unless the system property {@code firearrow.command} or the
 * environment variable {@code FIREARROW_COMMAND} names it.
 */
public final class FireArrowBroker
        implements BeforeAllCallback,
                AfterAllCallback,
                BeforeEachCallback,
                AfterEachCallback,
                ParameterResolver,
                AutoCloseable {
    private static final int QUEUES = 4;
    private static final long POLL_MS = 20;

    private final Map<String, Integer> topics = new LinkedHashMap<>();
    private final Map<String, String> settings = new LinkedHashMap<>();
    private final Set<String> users = new HashSet<>();
    private BrokerProcess process;

    /** A broker that starts with the first test that uses it. */
    public FireArrowBroker() {}

    // ---- before the start ----

    /** Create topics with four queues each when the broker has started. */
    public FireArrowBroker topics(String... names) {
        for (String name : names) {
            topic(name, QUEUES);
        }
        return this;
    }

    /** Create this topic when the broker has started. */
    public synchronized FireArrowBroker topic(String name, int queues) {
        topics.put(name, queues);
        return this;
    }

    /** Set a key of broker.conf, such as {@code autoCreateTopicEnable}. */
    public synchronized FireArrowBroker setting(String key, String value) {
        settings.put(key, value);
        return this;
    }

    // ---- while it runs ----

    /** For clients: {@code producer.setNamesrvAddr(broker.nameServer())}. */
    public String nameServer() {
        return running().nameServer;
    }

    /** The broker's own {@code host:port}. */
    public String address() {
        return running().address;
    }

    /** The store's folder, which is deleted when the broker stops. {@code firearrow store} and Spark can read it before. */
    public Path store() {
        return running().store;
    }

    /** Create a topic; the name server knows it when this returns. */
    public void createTopic(String name, int queues) {
        requests().createTopic(name, queues);
    }

    /** All messages of a topic in the order in which they were stored; none if there is no such topic. */
    public List<MessageExt> messagesIn(String topic) {
        return requests().messagesIn(topic);
    }

    /**
     * Wait until the topic has at least {@code count} messages and return all of them, as {@link #messagesIn}. Nothing is
     * taken away from consumers.
     *
     * @throws AssertionError there are fewer after {@code timeout}
     */
    public List<MessageExt> awaitMessages(String topic, int count, Duration timeout) {
        long deadline = System.nanoTime() + timeout.toNanos();
        while (true) {
            List<MessageExt> found = messagesIn(topic);
            if (found.size() >= count) {
                return found;
            }
            if (System.nanoTime() >= deadline) {
                throw new AssertionError(
                        "topic " + topic + " has " + found.size() + " messages after " + timeout + ", not " + count);
            }
            sleep();
        }
    }

    private static void sleep() {
        try {
            Thread.sleep(POLL_MS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while waiting for messages", error);
        }
    }

    private synchronized BrokerProcess running() {
        if (process == null) {
            throw new IllegalStateException(
                    "the broker does not run: put it in a field with @RegisterExtension, or call start()");
        }
        return process;
    }

    private BrokerRequests requests() {
        return new BrokerRequests(running());
    }

    // ---- start and stop ----

    /**
     * Start the broker, unless it runs, and create its topics.
     *
     * @throws IllegalStateException there is no command, or the broker ended; with the end of its log
     */
    public synchronized FireArrowBroker start() {
        if (process == null) {
            process = BrokerProcess.start(settings);
            try {
                topics.forEach(this::createTopic);
            } catch (RuntimeException error) {
                close();
                throw error;
            }
        }
        return this;
    }

    /** Stop the broker and delete its store. It can start again, with an empty store. */
    @Override
    public synchronized void close() {
        if (process != null) {
            BrokerProcess ending = process;
            process = null;
            ending.close();
        }
    }

    @Override
    public void beforeAll(ExtensionContext context) {
        enter(context);
    }

    @Override
    public void beforeEach(ExtensionContext context) {
        enter(context);
    }

    @Override
    public void afterEach(ExtensionContext context) {
        leave(context);
    }

    @Override
    public void afterAll(ExtensionContext context) {
        leave(context);
    }

    /** Classes contain tests and nested classes: the outermost one that is there decides when the broker stops. */
    private synchronized void enter(ExtensionContext context) {
        start();
        users.add(context.getUniqueId());
    }

    private synchronized void leave(ExtensionContext context) {
        if (users.remove(context.getUniqueId()) && users.isEmpty()) {
            close();
        }
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        return parameter.getParameter().getType() == FireArrowBroker.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        return this;
    }
}
