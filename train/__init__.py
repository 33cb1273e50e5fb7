"""Train a DFlash drafter for a target language model."""
