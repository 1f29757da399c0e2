"""RocketMQ's SQL92 filter expressions: text → tokens → parser → expressions; values compare as in Java.

- `expressions`: what a parsed filter asks of the properties of a message
- `parser`: SQL92 text → expression: the grammar of Apache's SelectorParser.jj with its words for every
  error
- `tokens`: Tokens of a SQL92 expression, found one at a time as the parser asks: what it never looks at may
  be anything
- `values`: How values are compared: Java's rules for Boolean, Integer, Long, Double and String, as Apache's
  filters use them
"""
