"""Listeners, connections and the dispatch of request codes."""
