"""The settings that suit the data best, found by trying."""
