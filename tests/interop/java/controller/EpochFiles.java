import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.remoting.protocol.EpochEntry;
import org.apache.rocketmq.store.ha.autoswitch.EpochFileCache;

/** Apache's epoch file. `PATH read` prints its entries; `PATH append EPOCH-OFFSET...`, `PATH truncate OFFSET` write. */
public class EpochFiles {
    public static void main(String[] given) {
        EpochFileCache cache = new EpochFileCache(given[0]);
        if (!cache.initCacheFromFile()) {
            throw new IllegalStateException("the file cannot be read");
        }
        for (int n = 2; n < given.length; n++) {
            String[] parts = given[n].split("-");
            if (given[1].equals("truncate")) {
                cache.truncateSuffixByOffset(Long.parseLong(parts[0]));
            } else if (!cache.appendEntry(new EpochEntry(Integer.parseInt(parts[0]), Long.parseLong(parts[1])))) {
                throw new IllegalStateException("refused: " + given[n]);
            }
        }
        List<String> found = new ArrayList<>();
        for (EpochEntry entry : cache.getAllEntries()) {
            found.add(entry.getEpoch() + "-" + entry.getStartOffset());
        }
        System.out.println("entries " + String.join(" ", found));
    }
}
