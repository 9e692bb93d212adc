"""Summaries: when to make one (checkers), of what (selection, text), how (prompt, fork, budget), and what it cost."""
