"""The load generator and the reports of bench/."""
