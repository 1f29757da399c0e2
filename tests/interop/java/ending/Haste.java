import java.lang.management.LockInfo;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.management.ThreadMXBean;

/**
 * At shutdown Apache's client waits for a thread that checks only every 3 s whether it must end: that one is woken.
 * No other: only the thread for which the given one waits, and only with this name.
 */
final class Haste {
    private static final String SLOW = "NettyEventExecutor";
    private static final long LOOK_MS = 20;

    private Haste() {
    }

    /** From now on, for what `waiting` waits for. */
    static void begin(Thread waiting) {
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        Thread watch = new Thread(() -> {
            while (true) {
                wakeWhomItWaitsFor(threads.getThreadInfo(waiting.getId()));
                try {
                    Thread.sleep(LOOK_MS);
                } catch (InterruptedException end) {
                    return;
                }
            }
        }, "haste");
        watch.setDaemon(true);
        watch.start();
    }

    private static void wakeWhomItWaitsFor(ThreadInfo waiting) {
        LockInfo awaited = waiting == null ? null : waiting.getLockInfo();
        if (awaited == null || !awaited.getClassName().equals(Thread.class.getName())) {
            return;
        }
        Thread[] all = new Thread[2 * Thread.activeCount() + 16];
        int count = Thread.enumerate(all);
        for (int index = 0; index < count; index++) {
            if (System.identityHashCode(all[index]) == awaited.getIdentityHashCode()
                && SLOW.equals(all[index].getName())) {
                all[index].interrupt();
            }
        }
    }
}
