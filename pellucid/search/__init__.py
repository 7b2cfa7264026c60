"""Networks to Traces."""
