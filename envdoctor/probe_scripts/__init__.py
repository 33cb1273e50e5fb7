"""Programs that run in the inspected interpreter, never in the doctor's.

Each stands alone, writes one JSON object to standard output, and says on standard error what it is
about to do, so that a crash or a hang can be placed. An exception is left to the interpreter.
"""
