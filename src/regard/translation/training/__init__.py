"""Training: the loss, the schedule, checkpoints and the loop."""
