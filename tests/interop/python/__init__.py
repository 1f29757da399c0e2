"""Our own client as one more driver: told what to do line by line, as `../java/driver/Driver.java` is."""
