"""Hooks of coding agents, in processes of their own, and the plugin that has them."""
