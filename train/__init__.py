"""Train a DFlash drafter for a target language model.

`README.md` in this folder says which module tells what, in the order in which the method is told.
"""
