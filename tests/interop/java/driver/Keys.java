import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** The keys with which a client signs: its own, or those that this process has from its environment. */
final class Keys {
    private Keys() {
    }

    /** Parameters `accessKey` and `secretKey`. Null: nothing is signed. */
    static RPCHook hook(Parameters parameters) {
        String key = parameters.text("accessKey", System.getenv("INTEROP_ACCESS_KEY"));
        String secret = parameters.text("secretKey", System.getenv("INTEROP_SECRET_KEY"));
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, secret));
    }
}
