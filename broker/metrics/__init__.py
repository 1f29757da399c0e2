"""What the broker counts and measures: its metrics, its status and its history of a day.

- `apache_families`: the metrics of Apache's broker, with its names, labels and units
- `exposition`: the text of a scrape, in Prometheus's format and in OpenMetrics
- `history`: the file `history`: a row of rates and lags every ten seconds, for a day
- `lags`: how far all groups are behind, read in slices of the loop
- `own_families`: the metrics that Apache's broker does not have
- `recorder`: writes the history
- `scrape`: the text of all metrics, in slices
- `sources`: what all of these read
- `status`: the JSON of the status, and whether the broker is ready
"""
