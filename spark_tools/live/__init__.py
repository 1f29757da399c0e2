"""Live brokers: records pulled from them, batches sent to them. Knows no Spark; pickles, and opens where it is used."""
