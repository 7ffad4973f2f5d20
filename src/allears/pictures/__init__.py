"""Pictures of what is heard, of what a step holds and of how a run went: the data of each apart from its drawing."""
