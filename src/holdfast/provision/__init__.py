"""Where machines come from: described, deleted and created again, by provider."""
