"""Regression checks of summaries: a suite file in, verdicts out (WB-REG).

suite -> replaying -> figures -> expectations, drift, judging -> check -> words, junit
"""
