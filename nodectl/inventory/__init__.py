"""An Ansible inventory as hosts, read by Ansible itself."""
