"""What will break or slow a training, found before it starts."""
