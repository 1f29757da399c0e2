import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * One official client that executes commands line by line: `OPERATION key=value&key=value` on standard input, one JSON
 * object a line on standard output. Every operation ends with an event `done` or `failed`. One operation at a time;
 * events of running consumers come in between.
 */
public final class Driver {
    public static void main(String[] args) throws Exception {
        Events.takeStandardOutput();
        Haste.begin(Thread.currentThread());
        String nameServer = args[0];
        Producers producers = new Producers(nameServer);
        Consumers consumers = new Consumers(nameServer);
        Readers readers = new Readers(nameServer);
        Namespaces namespaces = new Namespaces(nameServer);
        Transactions transactions = new Transactions(nameServer);
        Requests requests = new Requests(nameServer, producers);
        Events.event("ready").with("version", Version.NAME).emit();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null && !line.equals("quit"); line = lines.readLine()) {
            String[] parts = line.split(" ", 2);
            Parameters parameters = Parameters.parse(parts.length > 1 ? parts[1] : "");
            try {
                if (!producers.run(parts[0], parameters) && !consumers.run(parts[0], parameters)
                    && !readers.run(parts[0], parameters) && !transactions.run(parts[0], parameters)
                    && !requests.run(parts[0], parameters) && !namespaces.run(parts[0], parameters)
                    && !Tls.run(parts[0], parameters)
                    && !Version.run(parts[0], parameters, nameServer, producers)) {
                    throw new IllegalArgumentException("no operation " + parts[0]);
                }
                Events.event("done").emit();
            } catch (Throwable error) {
                Events.failure("failed", error).emit();
            }
        }
        System.exit(0);
    }
}
