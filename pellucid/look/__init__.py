"""Seeing: terminal, pictures, reports."""
