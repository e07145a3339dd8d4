"""Names of network interfaces."""

# prefixes of what containers, virtual machines and VPNs make: the same on every host, and leading to none of them
VIRTUAL = (
    *("br-", "cali", "cni", "docker", "flannel", "kube", "lxc", "lxdbr", "nodelocal", "podman", "tailscale"),
    *("tap", "tun", "veth", "virbr", "wg"),
)
