"""What the model sees: prompt assembly, compaction of tool results, sanitising, token tailoring."""
