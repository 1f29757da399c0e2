"""FireArrow and the real thing: official clients, mqadmin and Apache's broker, as processes on free ports."""
