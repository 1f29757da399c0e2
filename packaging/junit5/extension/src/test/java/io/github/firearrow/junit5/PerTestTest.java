package io.github.firearrow.junit5;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.extension.RegisterExtension;

class PerTestTest {
    @RegisterExtension
    final FireArrowBroker broker = new FireArrowBroker().topics("orders");

    @RepeatedTest(2)
    void eachTestStartsWithAnEmptyStore() throws Exception {
        assertTrue(broker.messagesIn("orders").isEmpty());
        Sending.send(broker, "orders", "one");
        assertEquals(1, broker.awaitMessages("orders", 1, Duration.ofSeconds(1)).size());
    }
}
