package io.github.firearrow.junit5;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * `firearrow broker` as a child process that has printed its ready line.
 *
 * <p>A shell runs it (`run_broker.sh`) and waits for the end of its input. So the broker ends and its folder disappears
 * also if this JVM is killed.
 */
final class BrokerProcess implements AutoCloseable {
    private static final Pattern READY =
            Pattern.compile("firearrow ready: broker (\\S+:\\d+), name server (\\S+:\\d+), store .*");
    private static final int LOG_CHARS_SHOWN = 2000;
    private static final long READY_S = 30;
    private static final long STOP_S = 10;

    final String address;
    final String nameServer;
    final Path store;
    private final Process shell;

    private BrokerProcess(Process shell, Path store, Matcher ready) {
        this.shell = shell;
        this.store = store;
        this.address = ready.group(1);
        this.nameServer = ready.group(2);
    }

    /** Start it on free ports with an empty store. IllegalStateException: it did not start, and why. */
    static BrokerProcess start(Map<String, String> settings) {
        String command = command();
        try {
            Path folder = Files.createTempDirectory("firearrow-");
            Path log = folder.resolve("broker.log");
            Path store = folder.resolve("store");
            Process shell = new ProcessBuilder(arguments(folder, store, command, settings))
                    .redirectError(log.toFile())
                    .start();
            String line = firstLine(shell);
            Matcher ready = READY.matcher(line);
            if (ready.matches()) {
                return new BrokerProcess(shell, store, ready);
            }
            String text = Files.readString(log, StandardCharsets.UTF_8);
            String end = text.substring(Math.max(0, text.length() - LOG_CHARS_SHOWN));
            stop(shell);
            throw new IllegalStateException("the broker did not start: " + line + "\n" + end);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static List<String> arguments(Path folder, Path store, String command, Map<String, String> settings)
            throws IOException {
        List<String> arguments = new ArrayList<>(List.of("sh", "-c", script(), "sh", folder.toString(), command));
        arguments.addAll(List.of("broker", "--store", store.toString()));
        arguments.addAll(List.of("--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0"));
        settings.forEach((key, value) -> arguments.addAll(List.of("--set", key + "=" + value)));
        return arguments;
    }

    private static String script() throws IOException {
        try (InputStream script = BrokerProcess.class.getResourceAsStream("run_broker.sh")) {
            return new String(script.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    /** The ready line, or what happened instead. */
    private static String firstLine(Process shell) throws IOException {
        BufferedReader output =
                new BufferedReader(new InputStreamReader(shell.getInputStream(), StandardCharsets.UTF_8));
        CompletableFuture<String> line = CompletableFuture.supplyAsync(() -> {
            try {
                return output.readLine();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        });
        try {
            String found = line.get(READY_S, TimeUnit.SECONDS);
            return found == null ? "it ended" : found;
        } catch (TimeoutException error) {
            return "it was not ready within " + READY_S + " s";
        } catch (ExecutionException error) {
            throw new IOException(error.getCause());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            return "the test was interrupted";
        }
    }

    /** The path of the command. IllegalStateException: there is none, and what to do. */
    private static String command() {
        String named = System.getProperty("firearrow.command", System.getenv("FIREARROW_COMMAND"));
        if (named != null && !named.isEmpty()) {
            if (Files.isExecutable(Path.of(named))) {
                return named;
            }
            throw new IllegalStateException("there is no program " + named
                    + ": set firearrow.command or FIREARROW_COMMAND to the path of the command firearrow");
        }
        for (String folder : System.getenv().getOrDefault("PATH", "").split(File.pathSeparator)) {
            Path command = Path.of(folder, "firearrow");
            if (Files.isRegularFile(command) && Files.isExecutable(command)) {
                return command.toString();
            }
        }
        throw new IllegalStateException("there is no command firearrow on PATH: run `pip install firearrow`,"
                + " or set FIREARROW_COMMAND to its path");
    }

    /** Stop the broker; its folder is deleted. */
    @Override
    public void close() {
        stop(shell);
    }

    /** SIGTERM, and after ten seconds SIGKILL. */
    private static void stop(Process shell) {
        try {
            shell.getOutputStream().close();
            if (!shell.waitFor(STOP_S, TimeUnit.SECONDS)) {
                shell.descendants().forEach(ProcessHandle::destroyForcibly);
                shell.waitFor(STOP_S, TimeUnit.SECONDS);
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
