import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The arguments of one operation, written like the query of a URL; a name may come more than once. */
final class Parameters {
    private final Map<String, List<String>> values = new LinkedHashMap<>();

    static Parameters parse(String query) {
        Parameters parameters = new Parameters();
        for (String pair : query.split("&")) {
            int at = pair.indexOf('=');
            if (at > 0) {
                String name = URLDecoder.decode(pair.substring(0, at), StandardCharsets.UTF_8);
                String value = URLDecoder.decode(pair.substring(at + 1), StandardCharsets.UTF_8);
                parameters.values.computeIfAbsent(name, key -> new ArrayList<>()).add(value);
            }
        }
        return parameters;
    }

    List<String> all(String name) {
        return values.getOrDefault(name, List.of());
    }

    String text(String name) {
        if (!values.containsKey(name)) {
            throw new IllegalArgumentException("parameter " + name + " is missing");
        }
        return values.get(name).get(0);
    }

    String text(String name, String otherwise) {
        return values.containsKey(name) ? values.get(name).get(0) : otherwise;
    }

    long number(String name, long otherwise) {
        return values.containsKey(name) ? Long.parseLong(text(name)) : otherwise;
    }

    /** The values of names that begin with `prefix`, by the rest of the name. */
    Map<String, String> under(String prefix) {
        Map<String, String> found = new LinkedHashMap<>();
        values.forEach((name, all) -> {
            if (name.startsWith(prefix)) {
                found.put(name.substring(prefix.length()), all.get(0));
            }
        });
        return found;
    }

    static byte[] bytes(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int at = 0; at < bytes.length; at++) {
            bytes[at] = (byte) (Character.digit(hex.charAt(2 * at), 16) << 4 | Character.digit(hex.charAt(2 * at + 1), 16));
        }
        return bytes;
    }
}
