"""Tools for a store's folder: `firearrow store verify|repair|dump|stat|backup`. Imported only when asked for."""
