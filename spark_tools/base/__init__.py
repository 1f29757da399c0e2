"""What every package of the Spark tools may import."""
