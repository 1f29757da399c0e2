"""Our own client as another driver: it executes commands line by line, as `../java/driver/Driver.java` does."""
