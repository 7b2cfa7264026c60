"""What the recipes about proteins share."""
