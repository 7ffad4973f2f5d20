"""The training engine: one step, what is around it, and how it is kept on disk."""
