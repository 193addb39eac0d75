"""What is asked: corpora, prompts of exact length, sessions, saved plans. Knows no engine."""
