"""What daemons stand on: processes, threads, clocks, chance, the network and the store."""
