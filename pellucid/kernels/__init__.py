"""The sums of model/ that training waits for, fused for the processor; each equal to its plain version by test."""
