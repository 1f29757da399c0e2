"""What every package of the broker may import: options, clock, errors, peers, small formats."""
