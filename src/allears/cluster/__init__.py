"""Starting many processes, and knowing which one failed first."""
