"""From a dataset's index to batches: the plan, the reading, the collating."""
