package io.github.firearrow.junit5;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.rocketmq.common.message.MessageExt;
import org.junit.jupiter.api.MethodOrderer;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestMethodOrder;
import org.junit.jupiter.api.extension.RegisterExtension;

@TestMethodOrder(MethodOrderer.OrderAnnotation.class)
class PerClassTest {
    private static final Duration SECOND = Duration.ofSeconds(1);
    private static String address;

    @RegisterExtension
    static final FireArrowBroker broker =
            new FireArrowBroker().topics("orders").topic("single", 1).setting("autoCreateTopicEnable", "false");

    @Test
    @Order(1)
    void messagesComeInTheirOrderAndStay() throws Exception {
        String large = "x".repeat(100_000);
        Sending.send(broker, "orders", "a", "b", "c", "d", "e", large);
        for (int call = 0; call < 2; call++) {
            List<MessageExt> messages = broker.awaitMessages("orders", 6, SECOND);
            assertEquals(List.of("a", "b", "c", "d", "e", large), bodies(messages));
            assertEquals("new", messages.get(0).getTags());
        }
        address = broker.address();
    }

    @Test
    @Order(2)
    void theBrokerIsThatOfTheClass() {
        assertEquals(address, broker.address());
        assertEquals(6, broker.messagesIn("orders").size());
    }

    @Nested
    class Inner {
        @Test
        void theBrokerIsThatOfTheOuterClass() {
            assertEquals(address, broker.address());
        }
    }

    @Test
    @Order(3)
    void messagesThatComeLaterAreAwaited() throws Exception {
        Thread sender = new Thread(() -> {
            try {
                Thread.sleep(300);
                Sending.send(broker, "single", "late");
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        });
        sender.start();
        assertEquals(List.of("late"), bodies(broker.awaitMessages("single", 1, Duration.ofSeconds(30))));
        sender.join();
    }

    @Test
    @Order(4)
    void manyMessagesOfOneQueue() throws Exception {
        int before = broker.messagesIn("single").size();
        String[] sent = new String[100];
        for (int number = 0; number < sent.length; number++) {
            sent[number] = String.valueOf(number);
        }
        Sending.send(broker, "single", sent);
        List<String> found = bodies(broker.awaitMessages("single", before + 100, SECOND));
        assertEquals(List.of(sent), found.subList(before, found.size()));
    }

    @Test
    void tooFewMessagesFailWithTheirNumber() {
        broker.createTopic("quiet", 2);
        AssertionError error = assertThrows(
                AssertionError.class, () -> broker.awaitMessages("quiet", 2, Duration.ofMillis(100)));
        assertEquals("topic quiet has 0 messages after PT0.1S, not 2", error.getMessage());
        assertTrue(broker.messagesIn("no-such-topic").isEmpty());
    }

    @Test
    void aTopicThatCannotBeCreatedSaysWhy() {
        IllegalStateException error =
                assertThrows(IllegalStateException.class, () -> broker.createTopic("a b", 1));
        assertTrue(error.getMessage().startsWith("topic a b: the broker answered 29 "), error.getMessage());
    }

    private static List<String> bodies(List<MessageExt> messages) {
        return messages.stream().map(message -> new String(message.getBody())).collect(Collectors.toList());
    }
}
