"""A small OpenAI server in two processes for engines that are libraries."""
