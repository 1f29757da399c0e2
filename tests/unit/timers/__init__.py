"""Timer messages: wheel, log, recovery and damage."""
