"""What the host daemon does upon a notice, for jobs that Holdfast did not start."""
