"""The file that spark-submit is given for a pipeline; the command lines are in `edge/cli`."""
