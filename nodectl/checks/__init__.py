"""Facts and measurements against a profile: findings. Never fetches, never prints."""
