"""The sub-commands of `python -m train`; this module imports nothing.

Each is a module of its own in this folder with `add_arguments(parser)` and `run(options) -> int`.
None imports torch before `run` needs it, so that `--help` and a wrong argument are answered at
once. What happens without a sub-command is `train.commands.train`.
"""

COMMANDS = {
    "plan": "say what a run will take: steps, memory, operations, time; and stop",
    "fields": "print every setting of a run file with its default and meaning",
    "warm": "compile what a run needs, and stop before its first step",
    "evaluate": "measure finished drafters: acceptance, losslessness, speed-up",
    "generate": "answer prompts with a finished drafter, and show its worth",
    "export": "write a finished drafter in the layout of a serving engine",
    "self-prompts": "let the target write prompts itself, as many as wanted",
    "regenerate": "let the target write the answers of a prompts file",
    "prompts": "build the prompts of the embedded default from data that packages ship",
}
"""Name, which with `_` for `-` is also the module's, to what it does; in the order of the help."""

TALKERS = ("fields",)
"""Those that only print something: they need neither torch nor an environment that has it."""
