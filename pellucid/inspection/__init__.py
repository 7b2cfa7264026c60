"""What a model did and why: numbers beside its attention, from traces."""
