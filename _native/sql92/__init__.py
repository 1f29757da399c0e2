"""RocketMQ's SQL92 filter expressions: text → tokens → parser → expressions; values compare as in Java.

- `errors`: what is wrong with an expression, or with the values that it compares
- `expressions`: evaluates a parsed filter on the properties of a message
- `parser`: parses SQL92 text, with the grammar and error texts of Apache's SelectorParser.jj
- `tokens`: splits a SQL92 expression into tokens, as the parser needs them
- `values`: compares values by Java's rules
"""
