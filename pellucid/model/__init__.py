"""The maths; modules hold parameters and nothing else."""
