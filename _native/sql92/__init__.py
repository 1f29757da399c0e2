"""RocketMQ's SQL92 filter expressions: text → tokens → parser → expressions; values compare as in Java."""
