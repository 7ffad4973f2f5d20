"""Where everything meets: settings and a dataset become a run; a run becomes text and error rates."""
