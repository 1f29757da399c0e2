package example;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.github.firearrow.junit5.FireArrowBroker;
import java.time.Duration;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class InvoicesTest {
    /** `static`: one broker for the tests of this class. Without it, each test has a broker of its own. */
    @RegisterExtension
    static final FireArrowBroker broker = new FireArrowBroker().topics("orders", "invoices");

    @Test
    void everyOrderGetsAnInvoice() throws Exception {
        DefaultMQProducer shop = new DefaultMQProducer("shop");
        shop.setNamesrvAddr(broker.nameServer());
        shop.setSendMsgTimeout(30_000);
        shop.start();
        try (Invoices service = new Invoices(broker.nameServer()).start()) {
            for (String item : new String[] {"book", "pen", "lamp"}) {
                shop.send(new Message("orders", "new", "order-" + item, item.getBytes()));
            }
            Set<String> invoices = broker.awaitMessages("invoices", 3, Duration.ofSeconds(60)).stream()
                    .map(message -> message.getKeys() + ": " + new String(message.getBody()))
                    .collect(Collectors.toSet());
            assertEquals(
                    Set.of(
                            "order-book: invoice for book",
                            "order-pen: invoice for pen",
                            "order-lamp: invoice for lamp"),
                    invoices);
        } finally {
            shop.shutdown();
        }
    }
}
