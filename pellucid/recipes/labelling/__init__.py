"""What the recipes of tags and classes share."""
