"""What also runs on macOS and Windows, where FireArrow is a client: no broker, no Linux calls, no fixtures."""
