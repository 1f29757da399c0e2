package io.github.firearrow.junit5;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.extension.ExtendWith;

@ExtendWith(FireArrowBroker.class)
class ParameterTest {
    private static String address;

    @BeforeAll
    static void createTopics(FireArrowBroker broker) {
        broker.createTopic("orders", 4);
        address = broker.address();
    }

    @RepeatedTest(2)
    void theParameterIsTheBrokerOfTheClass(FireArrowBroker broker) {
        assertEquals(address, broker.address());
        assertEquals(0, broker.messagesIn("orders").size());
    }
}
