"""`firearrow status`, `top`, `log`, `config`, `replica`, `promote`, `user`, `quota` and `bench`.

- `bench`: a quick load on the brokers
- `config`: broker options
- `log`: the last lines of the brokers' logs
- `promotion`: makes a slave the master
- `quota`: quotas, and what was used of them
- `replica`: masters and slaves: how far each slave is
- `status`: how the brokers are
- `top`: rates and lags, refreshed
- `user`: users and rules
"""
