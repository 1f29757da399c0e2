"""Orders and the mails about them."""
