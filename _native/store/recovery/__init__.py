"""What happens when a store is opened after a crash or damage: find the end, rebuild, repair."""
