"""Forms of a report and of the checks' pages for other programs to read."""
