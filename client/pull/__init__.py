"""Pull requests and the loops that make them.

- `prefetcher`: pulls each queue of a pull consumer ahead of its user, and keeps what came until he polls
- `pull_request`: A PULL request and its answer, and Puller, which sends the one and reads the other for one
  group
- `push_pull_loop`: pulls each queue again and again, as long as its ProcessQueue is ours and has room for
  more
"""
