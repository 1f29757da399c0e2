"""Pull requests and the loops that make them.

- `prefetcher`: Prefetcher, which pulls the queues of a pull consumer and buffers the messages until `poll`
- `pull_request`: a PULL request and its answer, and PullClient, which sends it for one group
- `push_pull_loop`: PullLoop, which pulls each owned queue of a push consumer repeatedly, within its limits
"""
