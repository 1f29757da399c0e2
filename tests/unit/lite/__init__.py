"""LITE topics: subscriptions, events and expiry, with a manual clock."""
