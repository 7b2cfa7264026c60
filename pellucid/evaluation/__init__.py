"""What outputs are worth."""
