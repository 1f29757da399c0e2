import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/** The keys with which all clients of this process sign, from its environment. */
final class Keys {
    private Keys() {
    }

    /** Null: nothing is signed. */
    static RPCHook hook() {
        String key = System.getenv("INTEROP_ACCESS_KEY");
        return key == null ? null : new AclClientRPCHook(new SessionCredentials(key, System.getenv("INTEROP_SECRET_KEY")));
    }
}
