package io.github.firearrow.junit5;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.platform.testkit.engine.EngineTestKit;

class StartAndStopTest {
    private static final Path TEMPORARY = Path.of(System.getProperty("java.io.tmpdir"));
    private Set<Path> before;
    private String command;

    @BeforeEach
    void remember() throws IOException {
        before = folders();
        command = System.getProperty("firearrow.command");
    }

    @AfterEach
    void nothingIsLeft() throws IOException {
        if (command == null) {
            System.clearProperty("firearrow.command");
        } else {
            System.setProperty("firearrow.command", command);
        }
        assertEquals(before, folders());
    }

    private static Set<Path> folders() throws IOException {
        try (Stream<Path> paths = Files.list(TEMPORARY)) {
            return paths.filter(path -> path.getFileName().toString().startsWith("firearrow-"))
                    .collect(Collectors.toSet());
        }
    }

    private static boolean listens(String address) {
        int colon = address.indexOf(':');
        try (Socket socket = new Socket(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1)))) {
            return socket.isConnected();
        } catch (IOException error) {
            return false;
        }
    }

    @Test
    void aBrokerWithoutJUnitStartsAndStops() throws IOException {
        for (int round = 0; round < 5; round++) {
            try (FireArrowBroker broker = new FireArrowBroker().start()) {
                assertTrue(listens(broker.address()));
                assertTrue(Files.isDirectory(broker.store()));
                assertTrue(folders().contains(broker.store().getParent()));
            }
        }
    }

    static class OneTest {
        static String address;

        @RegisterExtension
        static final FireArrowBroker broker = new FireArrowBroker();

        @Test
        void test() {
            address = broker.address();
            assertTrue(listens(address));
        }
    }

    @Test
    void theBrokerEndsAfterTheClass() {
        EngineTestKit.engine("junit-jupiter").selectors(selectClass(OneTest.class)).execute().testEvents()
                .assertStatistics(events -> events.succeeded(1).failed(0));
        assertNotNull(OneTest.address);
        assertFalse(listens(OneTest.address));
    }

    /** What a JVM does that is killed. */
    static class Abandoned {
        public static void main(String[] arguments) throws InterruptedException {
            System.out.println(new FireArrowBroker().start().address());
            Thread.sleep(60_000);
        }
    }

    @Test
    void theBrokerOfAKilledJvmEnds() throws Exception {
        Process tests = new ProcessBuilder(
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        "-Djava.io.tmpdir=" + TEMPORARY,
                        "-cp",
                        System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")),
                        Abandoned.class.getName())
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
        String address = new BufferedReader(new InputStreamReader(tests.getInputStream())).readLine();
        assertTrue(listens(address));
        tests.destroyForcibly().waitFor();
        long deadline = System.nanoTime() + 20_000_000_000L;
        while (listens(address) || !before.equals(folders())) {
            assertTrue(System.nanoTime() < deadline, address + " still listens, or its folder is left");
            Thread.sleep(20);
        }
    }

    static class Refused {
        @RegisterExtension
        static final FireArrowBroker broker = new FireArrowBroker().topics("no spaces");

        @Test
        void test() {}
    }

    @Test
    void aBrokerWhoseTopicIsRefusedIsStopped() {
        EngineTestKit.engine("junit-jupiter").selectors(selectClass(Refused.class)).execute().allEvents()
                .assertStatistics(events -> events.failed(1).succeeded(1)); // the class failed, the engine did not
        assertThrows(IllegalStateException.class, Refused.broker::address);
    }

    @Test
    void aBrokerThatEndsAtItsStartSaysWhy() {
        FireArrowBroker broker = new FireArrowBroker().setting("brokerRole", "SLAVE");
        String text = assertThrows(IllegalStateException.class, broker::start).getMessage();
        assertTrue(text.startsWith("the broker did not start: it ended\n"), text);
        assertTrue(text.contains("brokerRole"), text);
    }

    @Test
    void withoutTheCommandTheErrorSaysWhatToDo() {
        System.setProperty("firearrow.command", "/no/such/firearrow");
        String text = assertThrows(IllegalStateException.class, new FireArrowBroker()::start).getMessage();
        assertEquals(
                "there is no program /no/such/firearrow:"
                        + " set firearrow.command or FIREARROW_COMMAND to the path of the command firearrow",
                text);
    }

    @Test
    void aBrokerThatDoesNotRunHasNoAddress() {
        String text = assertThrows(IllegalStateException.class, new FireArrowBroker()::address).getMessage();
        assertTrue(text.startsWith("the broker does not run: "), text);
    }
}
