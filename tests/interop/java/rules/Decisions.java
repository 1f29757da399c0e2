import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.apache.rocketmq.auth.authentication.model.Subject;
import org.apache.rocketmq.auth.authentication.model.User;
import org.apache.rocketmq.auth.authorization.chain.AclAuthorizationHandler;
import org.apache.rocketmq.auth.authorization.context.DefaultAuthorizationContext;
import org.apache.rocketmq.auth.authorization.exception.AuthorizationException;
import org.apache.rocketmq.auth.authorization.model.Acl;
import org.apache.rocketmq.auth.authorization.model.Resource;
import org.apache.rocketmq.auth.authorization.provider.AuthorizationMetadataProvider;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.broker.auth.converter.AclConverter;
import org.apache.rocketmq.common.action.Action;
import org.apache.rocketmq.remoting.protocol.body.AclInfo;

/** Decides, with Apache's authorization handler, each case that it reads: a line of JSON in, a line of text out. */
public class Decisions {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        System.setOut(System.err);
        AuthConfig config = new AuthConfig();
        config.setConfigName("decisions");
        config.setAuthorizationMetadataProvider(OneAcl.class.getName());
        AclAuthorizationHandler handler = new AclAuthorizationHandler(config);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(decide(handler, JSON.parseObject(line)));
            out.flush();
        }
    }

    private static String decide(AclAuthorizationHandler handler, JSONObject asked) {
        OneAcl.acl = AclConverter.convertAcl(asked.getObject("acl", AclInfo.class));
        List<Action> actions = asked.getJSONArray("actions").stream().map(a -> Action.getByName((String) a)).toList();
        Resource resource = Resource.of(asked.getString("resource"));
        try {
            handler.handle(DefaultAuthorizationContext.of(User.of("app"), resource, actions, asked.getString("ip")), null).join();
            return "allowed";
        } catch (AuthorizationException refused) {
            return refused.getMessage();
        } catch (Exception failed) {
            Throwable cause = failed.getCause() == null ? failed : failed.getCause();
            return cause instanceof AuthorizationException ? cause.getMessage() : "failed: " + cause;
        }
    }

    public static class OneAcl implements AuthorizationMetadataProvider {
        static Acl acl;

        @Override
        public void initialize(AuthConfig config, Supplier<?> metadataService) {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public CompletableFuture<Void> createAcl(Acl created) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<Void> deleteAcl(Subject subject) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<Void> updateAcl(Acl updated) {
            throw new UnsupportedOperationException();
        }

        @Override
        public CompletableFuture<Acl> getAcl(Subject subject) {
            return CompletableFuture.completedFuture(acl);
        }

        @Override
        public CompletableFuture<List<Acl>> listAcl(String subjectFilter, String resourceFilter) {
            throw new UnsupportedOperationException();
        }
    }
}
