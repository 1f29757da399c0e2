import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.LoggerContext;
import ch.qos.logback.classic.PatternLayout;
import org.apache.rocketmq.logappender.logback.RocketmqLogbackAppender;
import org.slf4j.LoggerFactory;

/** Log lines by RocketMQ's appender for Logback: `Log NAME_SERVER TOPIC GROUP TAG LINES`. */
public class Log {
    public static void main(String[] arguments) throws Exception {
        LoggerContext context = (LoggerContext) LoggerFactory.getILoggerFactory();
        context.getLogger(Logger.ROOT_LOGGER_NAME).setLevel(Level.ERROR);
        PatternLayout layout = new PatternLayout();
        layout.setContext(context);
        layout.setPattern("%level %logger %msg%ex{1}");
        layout.start();
        RocketmqLogbackAppender appender = new RocketmqLogbackAppender();
        appender.setContext(context);
        appender.setNameServerAddress(arguments[0]);
        appender.setTopic(arguments[1]);
        appender.setProducerGroup(arguments[2]);
        appender.setTag(arguments[3]);
        appender.setLayout(layout);
        appender.start();
        Logger log = context.getLogger("shop");
        log.setLevel(Level.INFO);
        log.setAdditive(false);
        log.addAppender(appender);
        for (int line = 0; line < Integer.parseInt(arguments[4]); line++) {
            log.info("line {}", line);
        }
        log.error("the last", new IllegalStateException("Größe"));
        context.stop();
        System.exit(0);
    }
}
