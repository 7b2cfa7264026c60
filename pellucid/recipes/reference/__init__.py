"""What the recipes of published sets share."""
