"""The agent and its run: tools, the loop of model and tool calls, the runner around it."""
