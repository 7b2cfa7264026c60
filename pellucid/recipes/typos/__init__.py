"""What the recipes about words with one wrong letter share."""
