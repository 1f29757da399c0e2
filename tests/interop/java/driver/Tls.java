import org.apache.rocketmq.remoting.netty.TlsSystemConfig;

/** The TLS of clients that start from now on: parameters are Apache's system properties; those left out are unset. */
final class Tls {
    private Tls() {
    }

    static boolean run(String operation, Parameters parameters) {
        if (!operation.equals("tls")) {
            return false;
        }
        String enable = parameters.text(TlsSystemConfig.TLS_ENABLE, "false");
        System.setProperty(TlsSystemConfig.TLS_ENABLE, enable); // mqadmin's own clients read it
        TlsSystemConfig.tlsEnable = Boolean.parseBoolean(enable);
        TlsSystemConfig.tlsTestModeEnable = Boolean.parseBoolean(parameters.text(TlsSystemConfig.TLS_TEST_MODE_ENABLE, "false"));
        TlsSystemConfig.tlsConfigFile = parameters.text(TlsSystemConfig.TLS_CONFIG_FILE, "/etc/rocketmq/tls.properties");
        TlsSystemConfig.tlsClientAuthServer = Boolean.parseBoolean(parameters.text(TlsSystemConfig.TLS_CLIENT_AUTHSERVER, "false"));
        TlsSystemConfig.tlsClientTrustCertPath = parameters.text(TlsSystemConfig.TLS_CLIENT_TRUSTCERTPATH, null);
        TlsSystemConfig.tlsClientCertPath = parameters.text(TlsSystemConfig.TLS_CLIENT_CERTPATH, null);
        TlsSystemConfig.tlsClientKeyPath = parameters.text(TlsSystemConfig.TLS_CLIENT_KEYPATH, null);
        TlsSystemConfig.tlsClientKeyPassword = parameters.text(TlsSystemConfig.TLS_CLIENT_KEYPASSWORD, null);
        return true;
    }
}
