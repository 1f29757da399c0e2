import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/**
 * Apache's own SQL92 filter as a process. An input line: base64 of the expression, then base64 of each property set
 * (name 0x01 value 0x02 ...), separated by spaces. An output line: one letter for each set (T, F, N unknown, X failed),
 * or "! " and base64 of why the expression is invalid.
 */
public final class Judge {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(judge(line.split(" ", -1)));
        }
    }

    private static String judge(String[] words) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text(words[0]));
        } catch (MQFilterException wrong) {
            byte[] why = String.valueOf(wrong.getMessage()).getBytes(StandardCharsets.UTF_8);
            return "! " + Base64.getEncoder().encodeToString(why);
        }
        StringBuilder truths = new StringBuilder();
        for (int n = 1; n < words.length; n++) {
            truths.append(truth(expression, new Properties(text(words[n]))));
        }
        return truths.toString();
    }

    private static char truth(Expression expression, EvaluationContext properties) {
        try {
            Object value = expression.evaluate(properties);
            return value == null ? 'N' : Boolean.TRUE.equals(value) ? 'T' : 'F';
        } catch (Exception failed) {
            return 'X';
        }
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static final class Properties implements EvaluationContext {
        private final Map<String, Object> values = new HashMap<>();

        Properties(String text) {
            for (String part : text.split("\u0002")) {
                int mark = part.indexOf(1);
                if (mark > 0) {
                    values.put(part.substring(0, mark), part.substring(mark + 1));
                }
            }
        }

        @Override
        public Object get(String name) {
            return values.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return values;
        }
    }
}
