"""SQL92 filters: text → tokens → expression → what a record is asked."""
