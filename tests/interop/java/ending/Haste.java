import java.lang.management.LockInfo;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.management.ThreadMXBean;
import java.util.Map;

/**
 * At shutdown Apache's client waits for a thread that checks only every 3 s whether it must end: that one is woken.
 * No other: only the thread for which the given one waits, and only with this name. Apache's broker sleeps 2 s until no
 * pops come, and its store 3 s until its messages are dispatched, for which it waits afterwards: 200 ms suffice.
 */
final class Haste {
    private static final String SLOW = "NettyEventExecutor";
    private static final Map<String, String> SLEEP = Map.of(
        "org.apache.rocketmq.store.DefaultMessageStore", "shutdown",
        "org.apache.rocketmq.broker.processor.PopBufferMergeService", "run");
    private static final long LOOK_MS = 20;
    private static final int LOOKS_ASLEEP = 10;

    private Haste() {
    }

    /** From now on, for what `waiting` waits for. */
    static void begin(Thread waiting) {
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        Thread watch = new Thread(() -> {
            int asleep = 0;
            while (true) {
                Thread awaited = awaited(threads.getThreadInfo(waiting.getId()));
                Thread here = awaited == null ? waiting : awaited;
                if (awaited != null && SLOW.equals(awaited.getName())) {
                    awaited.interrupt();
                }
                asleep = isAsleep(threads.getThreadInfo(here.getId(), 2)) ? asleep + 1 : 0;
                if (asleep == LOOKS_ASLEEP) {
                    here.interrupt();
                }
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

    private static boolean isAsleep(ThreadInfo thread) {
        StackTraceElement[] calls = thread == null ? new StackTraceElement[0] : thread.getStackTrace();
        return calls.length == 2 && calls[0].getMethodName().equals("sleep")
            && calls[1].getMethodName().equals(SLEEP.get(calls[1].getClassName()));
    }

    /** The thread whose end this one waits for, or null. */
    private static Thread awaited(ThreadInfo waiting) {
        LockInfo lock = waiting == null ? null : waiting.getLockInfo();
        if (lock == null || !lock.getClassName().equals(Thread.class.getName())) {
            return null;
        }
        Thread[] all = new Thread[2 * Thread.activeCount() + 16];
        int count = Thread.enumerate(all);
        for (int index = 0; index < count; index++) {
            if (System.identityHashCode(all[index]) == lock.getIdentityHashCode()) {
                return all[index];
            }
        }
        return null;
    }
}
