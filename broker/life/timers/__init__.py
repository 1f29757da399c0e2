"""Timer messages: Apache's wheel, log and check point, kept as Apache keeps them at every moment. Loop thread."""
