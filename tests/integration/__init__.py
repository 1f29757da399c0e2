"""Tests of the broker as a process: real sockets, and a store folder for each test."""
