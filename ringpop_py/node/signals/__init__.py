"""What a node tells operators of its peers, its disks and its machine: no decisions."""
