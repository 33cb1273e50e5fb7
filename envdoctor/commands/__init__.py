"""One module for each command: parse, call one function, render, exit."""
